package main

import (
	"net"
	"net/http"
	"runtime"

	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"
	"github.com/lesismal/nbio/nbhttp"
	"github.com/lesismal/nbio/nbhttp/websocket"
)

// serveNBIO relays with lesismal/nbio: an event loop per core, edge triggered,
// messages handled on the loop (its pool of goroutines would add a hand-over).
func serveNBIO(ln net.Listener) error {
	logging.SetLevel(logging.LevelError)
	lobby := newLobby[*websocket.Conn]()

	upgrader := websocket.NewUpgrader()
	upgrader.CheckOrigin = func(*http.Request) bool { return true }
	upgrader.MessageLengthLimit = maxMessageBytes
	upgrader.OnMessage(func(c *websocket.Conn, kind websocket.MessageType, data []byte) {
		s, _ := c.Session().(*seat[*websocket.Conn])
		if s == nil {
			return
		}
		if peer := s.peer.Load(); peer != nil {
			_ = peer.conn.WriteMessage(kind, data)
		}
	})
	upgrader.OnClose(func(c *websocket.Conn, _ error) {
		if s, ok := c.Session().(*seat[*websocket.Conn]); ok {
			lobby.leave(s)
		}
	})

	mux := http.NewServeMux()
	mux.HandleFunc("/ws", func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		q := r.URL.Query()
		c.SetSession(lobby.enter(q.Get("serverId"), q.Get("role"), c))
	})

	engine := nbhttp.NewEngine(nbhttp.Config{
		Network:                      "tcp",
		Addrs:                        []string{ln.Addr().String()},
		Listen:                       func(_, _ string) (net.Listener, error) { return ln, nil },
		Handler:                      mux,
		IOMod:                        nbhttp.IOModNonBlocking,
		EpollMod:                     nbio.EPOLLET,
		NPoller:                      runtime.GOMAXPROCS(0),
		MaxLoad:                      1 << 20,
		MaxWebsocketFramePayloadSize: maxMessageBytes,
		ReleaseWebsocketPayload:      true,
		ServerExecutor:               func(f func()) { f() },
	})
	if err := engine.Start(); err != nil {
		return err
	}
	select {}
}
