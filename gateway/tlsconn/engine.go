// Package tlsconn is TLS on an event loop: crypto/tls over a wire that never
// blocks. It stands between a *loop.Conn and the handler of the plain bytes, on
// both sides of the gateway: in front of clients and towards origins.
//
// A handshake computes for a long time and waits for its peer, so it runs on a
// goroutine of its own; there the wire blocks, fed by the loop and writing
// through the loop's door. From its end on everything is the loop's: a wire that
// has run out of bytes says so with a temporary error, after which crypto/tls
// goes on where it was, and what crypto/tls writes is collected and offered to
// the kernel once.
package tlsconn

import (
	"runtime"
	"sync/atomic"

	"sluice/loop"
)

const (
	// readBytes is how much ciphertext is read at once, as much as a loop's read
	// buffer holds of plain bytes.
	readBytes = loop.ReadBuffer
	// chunkBytes is how much plaintext is encrypted before the kernel is asked
	// to take it, and so the most that a peer which takes nothing makes us keep
	// here: whole records.
	chunkBytes = 8 * maxPlaintext
	// manyKept is how much a loop keeps for all its peers before chunks become
	// single records.
	manyKept = 32 << 20
	// keptOutput bounds what a peer that takes nothing makes us keep: a chunk with
	// its overhead, and behind it what reading makes us send (answers to key
	// updates, alerts). A connection over it is broken.
	keptOutput = chunkBytes + 16<<10
	// maxRecords bounds the records one read decrypts, so that a stream of the
	// smallest ones, or of key updates, takes no more of a turn than anybody.
	maxRecords = 128

	maxPlaintext = 16 << 10 // RFC 8446 §5.1
	headerBytes  = 5
)

// Limits bound the handshakes of an Engine. A zero field takes its default.
type Limits struct {
	// Handshakes may be under way as a server, all loops together; one more ends
	// the one that has waited longest. Default 2048.
	Handshakes int
	// Computing is how many handshakes compute at the same time. Default half
	// of GOMAXPROCS, so that the loops keep a processor.
	Computing int
}

const defaultHandshakes = 2048

// mediumBuffer holds a record; the largest buffers hold what a blocked connection can
// have.
const mediumBuffer = 24 << 10

// An Engine is TLS on a set of loops. Its methods belong to the loop of the
// connection they are called for; Handshaking may be called from anywhere.
type Engine struct {
	shards  []*shard // by loop id
	perLoop int
	slots   chan struct{} // one is taken by each handshake that computes
	running atomic.Int64
}

// New makes an engine for the given loops, whose ids must be small.
func New(loops []*loop.Loop, lim Limits) *Engine {
	if lim.Handshakes == 0 {
		lim.Handshakes = defaultHandshakes
	}
	if lim.Computing == 0 {
		lim.Computing = max(1, runtime.GOMAXPROCS(0)/2)
	}
	e := &Engine{
		perLoop: max(1, lim.Handshakes/max(1, len(loops))),
		slots:   make(chan struct{}, lim.Computing),
	}
	for _, l := range loops {
		for len(e.shards) <= l.ID() {
			e.shards = append(e.shards, nil)
		}
		s := &shard{e: e, l: l, bufs: loop.NewBuffers(2<<20, 4<<10, mediumBuffer, keptOutput)}
		s.waiting.init()
		e.shards[l.ID()] = s
	}
	return e
}

// Handshaking returns how many handshakes are under way: begun by a whole first
// record, or as a client.
func (e *Engine) Handshaking() int64 { return e.running.Load() }

func (e *Engine) on(l *loop.Loop) *shard {
	s := e.shards[l.ID()]
	if s.in == nil {
		s.in = make([]byte, readBytes)
		s.join = make([]byte, 0, maxPlaintext)
	}
	return s
}

// chunk returns how much may be encrypted at once.
func (s *shard) chunk() int {
	if s.kept > manyKept {
		return maxPlaintext
	}
	return chunkBytes
}

// shard is what the connections of one loop share. It belongs to that loop's
// goroutine; its buffers are made with the first connection.
type shard struct {
	e *Engine
	l *loop.Loop

	in      []byte       // ciphertext of the read under way
	out     []byte       // ciphertext of the write under way
	join    []byte       // plaintext of the write under way that lay in pieces
	records int          // handed to crypto/tls by the read under way
	bufs    loop.Buffers // of ciphertext
	kept    int          // bytes of memory that hold ciphertext the kernel has not taken

	waiting handshakeList // as a server, the oldest first
}
