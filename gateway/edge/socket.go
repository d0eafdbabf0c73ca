package edge

import (
	"net/netip"

	"sluice/gateway/tlsconn"
	"sluice/loop"
)

// A Socket is what HTTP runs on: a *loop.Conn, or a layer over one that speaks
// TLS. Its methods mean what those of loop.Conn mean. A layer calls the handler
// that was set like a loop.Conn does; handlers in front of a Socket do not use
// the *loop.Conn they are called with.
type Socket interface {
	ID() uint64
	Remote() netip.AddrPort
	Accepted() int64
	Loop() *loop.Loop

	SetHandler(h loop.Handler)
	SetDeadline(when int64)
	Deadline() int64
	MoveTo(dst *loop.Loop, h loop.Mover)

	Read(b []byte) (n int, r loop.ReadResult)
	Readv(v *loop.Vec) (n int, r loop.ReadResult)
	Pause()
	Resume()
	Kick()

	Writable() bool
	Write(b []byte) (n int, err error)
	Writev(v *loop.Vec) (n int, err error)
	Unacked() int

	HungUp() bool
	WasReset() bool
	Close()
	Reset()
	Linger(maxBytes int, until, stall int64, gone func())
}

var (
	_ Socket = (*loop.Conn)(nil)
	_ Socket = (*tlsconn.Conn)(nil)
)
