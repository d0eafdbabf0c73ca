package gateway

import (
	"strconv"

	"github.com/valyala/fasthttp"

	"sluice/gateway/adminpage"
)

// page serves the live page: its HTML with the numbers in it, the files that it
// names, and the same numbers for its script. None of it tells of a peer, and all
// of it is for reading only.
func (a *admin) page(ctx *fasthttp.RequestCtx) {
	path := string(ctx.Path())
	file, isFile := adminpage.Assets[path]
	if !isFile && path != "/" && path != "/live.json" {
		ctx.Error("not found", 404)
		return
	}
	if !ctx.IsGet() && !ctx.IsHead() {
		ctx.Error("method not allowed", 405)
		ctx.Response.Header.Set("Allow", "GET, HEAD") // after Error, which begins the answer anew
		return
	}
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", adminpage.Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case isFile:
		// Kept by nobody across an update, which may change them together.
		ctx.SetContentType(file.Type)
		ctx.SetBody(file.Body)
	case path == "/":
		ctx.SetContentType("text/html; charset=utf-8")
		ctx.SetBody(a.view().HTML())
	default:
		sample, err := strconv.Atoi(string(ctx.QueryArgs().Peek("sample")))
		if err != nil {
			sample = -1 // it has none: all charts are sent
		}
		ctx.SetContentType("application/json")
		ctx.SetBody(a.view().JSON(sample))
	}
}
