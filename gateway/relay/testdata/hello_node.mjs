// Judges payloads as a JavaScript peer would read them. Standard input: payloads, each behind its length
// as four bytes, most significant first. Standard output: one letter a payload,
// r a hello with a bad or missing key, h a hello with a good one, p a ping, o another object, . no object.
import { createPublicKey, diffieHellman, generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';

const decoder = new TextDecoder('utf-8');
const own = generateKeyPairSync('x25519').privateKey;
const prime = 2n ** 255n - 19n;

function usableKey(key) {
  if (typeof key !== 'string') return false;
  const raw = Buffer.from(key, 'base64');
  if (raw.length !== 32 || raw.toString('base64') !== key) return false;
  if (BigInt('0x' + Buffer.from(raw).reverse().toString('hex')) >= prime) return false;
  try {
    // refuses a shared secret of zero, which is what a point of low order gives
    const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'X25519', x: raw.toString('base64url') }, format: 'jwk' });
    diffieHellman({ privateKey: own, publicKey });
    return true;
  } catch {
    return false;
  }
}

function verdict(payload) {
  let value;
  try {
    value = JSON.parse(decoder.decode(payload));
  } catch {
    return '.';
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return '.';
  const type = Object.hasOwn(value, 'type') ? value.type : undefined;
  const key = Object.hasOwn(value, 'key') ? value.key : undefined;
  if (type === 'ping') return 'p';
  if (type !== 'hello' && type !== 'e2ee_hello') return 'o';
  return usableKey(key) ? 'h' : 'r';
}

const input = readFileSync(0);
let out = '';
for (let at = 0; at < input.length; ) {
  const end = at + 4 + input.readUInt32BE(at);
  out += verdict(input.subarray(at + 4, end));
  at = end;
}
process.stdout.write(out);
