package relay

import (
	"strings"
	"testing"
)

func BenchmarkHello(b *testing.B) {
	f := func(name, payload string) {
		block := []byte(payload)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(block)))
			var s helloScanner
			for b.Loop() {
				s.Reset()
				s.Write(block)
				s.End()
			}
		})
	}
	f("hello", `{"type":"e2ee_hello","key":"`+goodKey+`"}`)
	f("event", `{"v":1,"id":"5f0c9a","method":"session.update","params":{"rows":40,"cols":132,"flags":[true,false,null]}}`)
	f("ciphertext", `{"n":12,"c":"`+strings.Repeat("QUJDREVGR0g0", 1<<16/12)+`"}`)
	f("numbers", `{"a":[`+strings.Repeat("123.25,-7e3,", 1<<16/12)+`0]}`)
	f("escapes", `{"a":"`+strings.Repeat(`line\n`, 1<<16/6)+`"}`)
	f("opaque", strings.Repeat("x", 1<<16))
}

func BenchmarkParseQuery(b *testing.B) {
	raw := []byte("serverId=srv_4f9d2c7e8b1a&role=client&v=2&connectionId=conn_0123456789abcdef")
	for b.Loop() {
		parseQuery(raw)
	}
}
