-- Gives the lease on a client back. ARGV: its token.
-- needs pair
if lessee(ARGV[1]) ~= ARGV[1] then return 'lost' end
redis.call('HDEL', key, 'o')
return 'disowned'
