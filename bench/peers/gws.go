package main

import (
	"net"
	"net/http"

	"github.com/lxzan/gws"
)

// serveGWS relays with lxzan/gws on its own small HTTP server: a goroutine per
// socket, a message is handled on the goroutine that read it.
func serveGWS(ln net.Listener) error {
	h := &gwsRelay{lobby: newLobby[*gws.Conn]()}
	server := gws.NewServer(h, &gws.ServerOption{
		ReadMaxPayloadSize:  maxMessageBytes,
		WriteMaxPayloadSize: maxMessageBytes,
		Authorize: func(r *http.Request, session gws.SessionStorage) bool {
			q := r.URL.Query()
			session.Store("serverId", q.Get("serverId"))
			session.Store("role", q.Get("role"))
			return r.URL.Path == "/ws"
		},
	})
	return server.RunListener(ln)
}

type gwsRelay struct {
	gws.BuiltinEventHandler
	lobby *lobby[*gws.Conn]
}

func (h *gwsRelay) OnOpen(c *gws.Conn) {
	key, _ := c.Session().Load("serverId")
	role, _ := c.Session().Load("role")
	c.Session().Store("seat", h.lobby.enter(key.(string), role.(string), c))
}

func (h *gwsRelay) OnClose(c *gws.Conn, _ error) {
	if s, ok := c.Session().Load("seat"); ok {
		h.lobby.leave(s.(*seat[*gws.Conn]))
	}
}

func (h *gwsRelay) OnMessage(c *gws.Conn, message *gws.Message) {
	defer message.Close()
	s, _ := c.Session().Load("seat")
	if peer := s.(*seat[*gws.Conn]).peer.Load(); peer != nil {
		// A failed write closes the peer by itself.
		_ = peer.conn.WriteMessage(message.Opcode, message.Bytes())
	}
}
