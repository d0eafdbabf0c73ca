package mte

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"sluice/loop"
)

const (
	// nameTTL is how long the addresses of a name are used. The resolver does not
	// tell the record's own time, and a moved origin should be found soon.
	nameTTL = 30 * time.Second
	// maxAddrs is how many addresses of a name are tried.
	maxAddrs = 8
)

// A nameCache is what a loop knows of one origin's name.
type nameCache struct {
	addrs   []netip.AddrPort // replaced whole, never changed
	until   int64            // loop time up to which addrs may be used
	asking  bool             // a look-up is under way
	waiting []*originCall
}

// fresh returns the addresses if they may be used at now.
func (n *nameCache) fresh(now int64) ([]netip.AddrPort, bool) {
	return n.addrs, len(n.addrs) > 0 && now < n.until
}

// forget takes a call that has ended off those that wait.
func (n *nameCache) forget(o *originCall) {
	if i := slices.Index(n.waiting, o); i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
	}
}

// resolve has o dialed once the name's addresses are known. The look-up runs on
// a goroutine of its own, one at a time for each name and loop.
func (p *originPool) resolve(o *originCall) {
	h := o.host
	h.names.waiting = append(h.names.waiting, o)
	if h.names.asking {
		return
	}
	h.names.asking = true
	h.uses++
	go lookUp(p, h)
}

// resolved brings the outcome of a look-up to the loop.
type resolved struct {
	p     *originPool
	h     *originHost
	addrs []netip.AddrPort
	err   error
}

func lookUp(p *originPool, h *originHost) {
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.Connect)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", h.up.host)
	r := resolved{p: p, h: h, err: err}
	for _, a := range found[:min(len(found), maxAddrs)] {
		r.addrs = append(r.addrs, netip.AddrPortFrom(a.Unmap(), h.up.port))
	}
	p.l.Post(r)
}

// Deliver dials for those that waited.
func (r resolved) Deliver(l *loop.Loop) {
	n := &r.h.names
	n.asking = false
	r.h.uses--
	if r.err == nil {
		n.addrs, n.until = r.addrs, l.Now()+int64(nameTTL)
	}
	list := n.waiting
	n.waiting = nil
	for _, o := range list {
		if r.err != nil {
			o.fail(failConnect, originFailText(r.h.up, r.err))
			continue
		}
		o.addrs = r.addrs
		r.p.dial(o, nil)
	}
}
