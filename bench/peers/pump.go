package main

import (
	"bytes"
	"io"
)

// A messageConn is what gorilla/websocket and its fasthttp relative have in
// common: the second is a port of the first.
type messageConn interface {
	NextReader() (kind int, r io.Reader, err error)
	WriteMessage(kind int, data []byte) error
	Close() error
}

// pump relays what s sends until one of the two sockets fails. Messages pass
// through one buffer that is kept: ReadMessage would allocate each anew.
func pump[C messageConn](l *lobby[C], s *seat[C]) {
	defer l.leave(s)
	defer s.conn.Close()
	var message bytes.Buffer
	for {
		kind, r, err := s.conn.NextReader()
		if err != nil {
			return
		}
		message.Reset()
		if _, err := message.ReadFrom(r); err != nil {
			return
		}
		peer := s.peer.Load()
		if peer == nil {
			continue
		}
		if peer.conn.WriteMessage(kind, message.Bytes()) != nil {
			return
		}
	}
}
