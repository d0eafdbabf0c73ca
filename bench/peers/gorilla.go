package main

import (
	"net"
	"net/http"

	"github.com/gorilla/websocket"
)

// serveGorilla relays with gorilla/websocket on net/http: a goroutine per
// socket.
func serveGorilla(ln net.Listener) error {
	lobby := newLobby[*websocket.Conn]()
	upgrader := websocket.Upgrader{
		CheckOrigin: func(*http.Request) bool { return true },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // answered already
		}
		q := r.URL.Query()
		pump(lobby, lobby.enter(q.Get("serverId"), q.Get("role"), c))
	})
	return http.Serve(ln, mux)
}
