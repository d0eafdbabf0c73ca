package main

import (
	"net"

	"github.com/fasthttp/websocket"
	"github.com/valyala/fasthttp"
)

// serveFastHTTP relays with fasthttp/websocket on fasthttp: a goroutine per
// socket.
func serveFastHTTP(ln net.Listener) error {
	lobby := newLobby[*websocket.Conn]()
	upgrader := websocket.FastHTTPUpgrader{
		CheckOrigin: func(*fasthttp.RequestCtx) bool { return true },
	}
	server := fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			if string(ctx.Path()) != "/ws" {
				ctx.Error("not found", fasthttp.StatusNotFound)
				return
			}
			key := string(ctx.QueryArgs().Peek("serverId"))
			role := string(ctx.QueryArgs().Peek("role"))
			// A failed upgrade was answered already.
			_ = upgrader.Upgrade(ctx, func(c *websocket.Conn) {
				pump(lobby, lobby.enter(key, role, c))
			})
		},
		NoDefaultServerHeader: true,
	}
	return server.Serve(ln)
}
