package http1

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// describe writes down everything a caller can learn from a request.
func describe(r *Request) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s(%v) %s form=%d path=%s query=%s/%v host=%s|%s|%s 1.%d framing=%d length=%d keep=%v upgrade=%v expect=%v",
		r.Method, r.MethodID, r.Target, r.Form, r.Path, r.Query, r.HasQuery, r.Host, r.Hostname, r.Port,
		r.Minor, r.Framing, r.Length, r.KeepAlive, r.ConnectionUpgrade, r.ExpectContinue)
	for i := range r.Fields {
		fmt.Fprintf(&s, "; %d %s=%s", r.Fields[i].ID, r.Fields[i].Name, r.Fields[i].Value)
	}
	return s.String()
}

// parseBytewise feeds a growing part of b, and while that is short a copy at a
// new address each time.
func parseBytewise(b []byte, lim *Limits) (string, int, *Error) {
	var r Request
	var m Mark
	for i := 1; i <= len(b); i++ {
		piece := b[:i]
		if i < 2048 {
			piece = bytes.Clone(piece)
		}
		n, err := r.Parse(piece, lim, &m)
		if n > 0 || err != nil {
			if m != (Mark{}) {
				panic("mark not reset")
			}
			return describe(&r), n, err
		}
	}
	return "", 0, nil
}

func TestRequestSuccess(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		head := []byte(in)
		all := append(bytes.Clone(head), "next"...)
		var r Request
		var m Mark
		n, err := r.Parse(all, &DefaultLimits, &m)
		if err != nil || n != len(head) {
			t.Fatalf("%q: n %d, want %d, error %v", in, n, len(head), err)
		}
		got := describe(&r)
		if !strings.Contains(got, want) {
			t.Fatalf("%q:\n got %s\nwant %s", in, got, want)
		}
		for i := range head {
			m = Mark{}
			if n, err := r.Parse(head[:i], &DefaultLimits, &m); n != 0 || err != nil {
				t.Fatalf("prefix %q: n %d, error %v", head[:i], n, err)
			}
		}
		slow, n, err := parseBytewise(all, &DefaultLimits)
		if err != nil || n != len(head) || slow != got {
			t.Fatalf("%q byte by byte: n %d, error %v\n got %s\nwant %s", in, n, err, slow, got)
		}
	}

	// the plain case
	f("GET /a?b=c HTTP/1.1\r\nHost: h:80\r\n\r\n", "GET(GET) /a?b=c form=0 path=/a query=b=c/true host=h:80|h|80 1.1 framing=0 length=-1 keep=true upgrade=false expect=false; 9 Host=h:80")
	// query: empty, with question marks, everything RFC 3986 allows
	f("GET /? HTTP/1.1\r\nHost: h\r\n\r\n", "path=/ query=/true")
	f("GET /x?a?b=%20%2f:@/?!$'()*+,;= HTTP/1.1\r\nHost: h\r\n\r\n", "query=a?b=%20%2f:@/?!$'()*+,;=/true")
	// one or two empty lines in front
	f("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "path=/")
	f("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "path=/")
	// white space round a value is not part of it, inside it is
	f("GET / HTTP/1.1\r\nHost:\t h \t\r\nX-T:a\tb c\r\nX-E:\r\nX-F: \r\n\r\n", "Host=h; 0 X-T=a\tb c; 0 X-E=; 0 X-F=")
	// obs-text in values
	f("GET / HTTP/1.1\r\nHost: h\r\nX: caf\xc3\xa9\xff\x80\r\n\r\n", "X=caf\xc3\xa9\xff\x80")
	// every tchar in a name and in a method
	f("GET / HTTP/1.1\r\nHost: h\r\n!#$%&'*+-.^_`|~0aZ: x\r\n\r\n", "!#$%&'*+-.^_`|~0aZ=x")
	f("M-SEARCH!#$%&'*+.^_`|~ / HTTP/1.1\r\nHost: h\r\n\r\n", "M-SEARCH!#$%&'*+.^_`|~()")
	// methods are case-sensitive
	f("get / HTTP/1.1\r\nHost: h\r\n\r\n", "get()")
	// lengths
	f("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", "framing=1 length=5")
	f("POST / HTTP/1.1\r\nHost: h\r\ncontent-LENGTH:\t005 \r\n\r\n", "framing=1 length=5")
	f("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "framing=0 length=0")
	f("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9223372036854775807\r\n\r\n", "framing=1 length=9223372036854775807")
	// chunked, in any case
	f("POST / HTTP/1.1\r\nHost: h\r\ntRANSFER-eNCODING:\tcHuNkEd\t\r\n\r\n", "framing=2 length=-1")
	// HTTP/1.0: closes unless asked, needs no Host
	f("GET / HTTP/1.0\r\n\r\n", "host=|| 1.0 framing=0 length=-1 keep=false")
	f("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "keep=true")
	f("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "keep=false")
	// Connection over several lines, with empty elements
	f("GET / HTTP/1.1\r\nHost: h\r\nConnection: ,keep-alive, Upgrade\r\nConnection: x, CLOSE\r\n\r\n", "keep=false upgrade=true")
	f("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\nConnection:\r\n\r\n", "keep=true upgrade=false")
	// Expect
	f("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n", "expect=true")
	f("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n", "expect=false")
	f("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", "expect=false")
	// absolute-form: its authority wins
	f("GET http://a.b:8080/p?q HTTP/1.1\r\nHost: other\r\n\r\n", "form=1 path=/p query=q/true host=a.b:8080|a.b|8080")
	f("GET HTTPS://[::1] HTTP/1.1\r\nHost: other\r\n\r\n", "form=1 path=/ query=/false host=[::1]|[::1]|")
	f("GET http://a?q HTTP/1.1\r\nHost: other\r\n\r\n", "path=/ query=q/true host=a|a|")
	// the two special forms
	f("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "form=3 path=* query=/false host=h|h|")
	f("CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", "form=2 path= query=/false host=h:443|h|443")
	// hosts
	f("GET / HTTP/1.1\r\nHost: 127.0.0.1:4000\r\n\r\n", "host=127.0.0.1:4000|127.0.0.1|4000")
	f("GET / HTTP/1.1\r\nHost: [2001:db8::1.2.3.4]:65535\r\n\r\n", "|[2001:db8::1.2.3.4]|65535")
	f("GET / HTTP/1.1\r\nHost: A_b-c.example.:\r\n\r\n", "host=A_b-c.example.:|A_b-c.example.|")
}

func TestRequestFailure(t *testing.T) {
	f := func(in string, want *Error) {
		t.Helper()
		var r Request
		var m Mark
		n, err := r.Parse([]byte(in), &DefaultLimits, &m)
		if n != 0 || err != want {
			t.Fatalf("%q: n %d, error %v, want %v", in, n, err, want)
		}
		if m != (Mark{}) {
			t.Fatalf("%q: mark not reset", in)
		}
		if _, n, err := parseBytewise([]byte(in), &DefaultLimits); n != 0 || err != want {
			t.Fatalf("%q byte by byte: n %d, error %v, want %v", in, n, err, want)
		}
	}
	const host = " HTTP/1.1\r\nHost: h\r\n"
	field := func(lines string, want *Error) {
		t.Helper()
		f("POST /"+host+lines+"\r\n\r\n", want)
	}

	// request line: exactly two blanks
	f("GET HTTP/1.1\r\n\r\n", ErrRequestLine)
	f("GET\r\n", ErrRequestLine)
	f("GET /\r\n\r\n", ErrRequestLine)
	f("GET / /"+host+"\r\n", ErrRequestLine)
	f("GET  /"+host+"\r\n", ErrRequestLine)
	f("GET / "+host+"\r\n", ErrRequestLine)
	f("GET / HTTP/1.1 \r\nHost: h\r\n\r\n", ErrRequestLine)
	f(" GET /"+host+"\r\n", ErrMethod)
	f("GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", ErrRequestLine)
	f("rubbish\r\n\r\n", ErrRequestLine)
	f("PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET /"+host+"\r\n", ErrRequestLine)
	f("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", ErrRequestLine)
	// method
	f("G@T /"+host+"\r\n", ErrMethod)
	f("GET: /"+host+"\r\n", ErrMethod)
	f("G\xc9T /"+host+"\r\n", ErrMethod)
	f("GET\r /"+host+"\r\n", ErrMethod)
	f("G\x00T /"+host+"\r\n", ErrMethod)
	// target
	f("GET /\x0c"+host+"\r\n", ErrTarget)
	f("GET /a\tb"+host+"\r\n", ErrTarget)
	f("GET /\x7f"+host+"\r\n", ErrTarget)
	f("GET /caf\xc3\xa9"+host+"\r\n", ErrTarget)
	f("GET /a#b"+host+"\r\n", ErrTarget)
	f("GET foo"+host+"\r\n", ErrTarget)
	f("GET ?q"+host+"\r\n", ErrTarget)
	f("GET ftp://a/"+host+"\r\n", ErrTarget)
	f("GET http:/a/"+host+"\r\n", ErrTarget)
	f("OPTIONS *x"+host+"\r\n", ErrTarget)
	f("GET *"+host+"\r\n", ErrTargetForm)
	f("CONNECT /x"+host+"\r\n", ErrTargetForm)
	f("CONNECT h"+host+"\r\n", ErrTargetForm)
	f("CONNECT http://h:1/"+host+"\r\n", ErrTargetForm)
	f("GET h:80"+host+"\r\n", ErrTarget)
	f("GET http://"+host+"\r\n", ErrTargetAuthority)
	f("GET http:///x"+host+"\r\n", ErrTargetAuthority)
	f("GET http://u@h/"+host+"\r\n", ErrTargetAuthority)
	f("GET http://a:99999x/x"+host+"\r\n", ErrTargetAuthority)
	f("GET http://a:70000/x"+host+"\r\n", ErrTargetAuthority)
	f("GET http://a\x01b/x"+host+"\r\n", ErrTarget)
	f("GET http://a%20b/x"+host+"\r\n", ErrTargetAuthority)
	// version: one we know, one that exists, nonsense
	for _, v := range []string{"HTTP/2.0", "HTTP/3.0", "HTTP/1.2", "HTTP/0.9", "HTTP/9.9"} {
		f("GET / "+v+"\r\n", ErrVersion)
	}
	for _, v := range []string{"HTTP/1.", "HTTP/1", "HTTP/01.1", "HTTP /1.1", "HTTPS/1.1", "XHTTP/1.1", "http/1.1",
		"HTTP/4294967297.1", "HTTP/1.10", "HTTP/1,1", "HTTP/1.x", "HTTP/+1.1", ""} {
		f("GET / "+v+"\r\n", ErrRequestLine)
	}
	f("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ErrVersion)
	// line ends
	f("GET /\nHTTP/1.1\r\nHost: h\r\n\r\n", ErrBareLF)
	f("GET / HTTP/1.1\nHost: h\n\n", ErrBareLF)
	f("GET /"+host+"X: a\nY: b\r\n\r\n", ErrBareLF)
	f("GET /"+host+"\n", ErrBareLF)
	f("\nGET /"+host+"\r\n", ErrBareLF)
	f("\r\n\r\n\r\nGET /"+host+"\r\n", ErrEmptyLines)
	// field lines
	field("X-A : b", ErrFieldName)
	field("X-A\t: b", ErrFieldName)
	field(": b", ErrFieldName)
	field("no colon", ErrFieldName)
	field("XAb", ErrFieldName)
	for _, c := range "\x00\x01\x0b\x0c\x1f\x7f\"(),/;<=>?@[\\]{}" {
		field("X-A"+string(c)+"B: c", ErrFieldName)
	}
	field("X-A\xa0B: c", ErrFieldName)
	field("X-A\r: c", ErrFieldName)
	for c := range 256 {
		if c < 0x20 && c != '\t' && c != '\n' || c == 0x7f {
			field("X-A: b"+string(rune(c))+"c", ErrFieldValue)
			field("X-A: "+string(rune(c)), ErrFieldValue)
			field("X-A: 0123456"+string(rune(c))+"8901234567890", ErrFieldValue)
		}
	}
	field("X-A: b\rContent-Length: 5", ErrFieldValue)
	field("X-A: b\r\n c", ErrFold)
	field("X-A: b\r\n\tc", ErrFold)
	field("X-A: b\r\n ", ErrFold)
	f("GET / HTTP/1.1\r\n Host: h\r\n\r\n", ErrFold)
	// Host
	f("GET / HTTP/1.1\r\n\r\n", ErrHostMissing)
	f("GET http://h/ HTTP/1.1\r\n\r\n", ErrHostMissing)
	field("Host: h", ErrHostRepeated)
	field("A: b\r\nhOST: evil", ErrHostRepeated)
	for _, h := range []string{"", "h/x", "u@h", "a,b", "::1]", "[zz]", "[::1", "[::1]x", `"a"`, "http://h", "h:x", "h:-1", "h:65536",
		"h:000080", ":80", "a b", "a\xffb", "a%2eb", "h:80:80", "[::1%25eth0]", "h#", "h\\x", "a;b", "[v1.a]"} {
		f("GET / HTTP/1.1\r\nHost: "+h+"\r\n\r\n", ErrHost)
	}
	f("GET / HTTP/1.0\r\nHost: a/b\r\n\r\n", ErrHost)
	// Content-Length
	for _, v := range []string{"", "-5", "+5", "5.0", "5 5", "1_0", ",5", "5,", "5, 5", "6,5", "5;a=b", "5Z", "0x5", "inf", "chunked", "5\xc2\x85",
		"9223372036854775808", "18446744073709551621", "1" + strings.Repeat("0", 400), "\xd9\xa5"} {
		field("Content-Length: "+v, ErrLength)
	}
	field("Content-Length: 5\x00", ErrFieldValue)
	field("Content-Length:\x0b5", ErrFieldValue)
	field("Content-Length: 5\r\nContent-Length: 5", ErrLengthRepeated)
	field("Content-Length: 5\r\nContent-Length: 0", ErrLengthRepeated)
	field("Content-Length: x\r\nContent-Length: 5", ErrLength)
	// Transfer-Encoding
	for _, v := range []string{"", ",chunked", "chunked,", "chunked,,", "chunked, chunked", "chunked, identity", "chunked;foo=bar",
		"chunked;q=0.5", "chun ked", "CHUNKED cow", "\"chunked\"", "chunked\xa0", "\xffchunked\xff", "chunked, identity, chunked", "cow, chunked;a", ";"} {
		field("Transfer-Encoding: "+v, ErrCoding)
	}
	for _, v := range []string{"cow", "identity", "gzip, chunked", "cow, chunked", "gzip;q=1, chunked", "chunkedx", "xchunked"} {
		field("Transfer-Encoding: "+v, ErrCodingUnknown)
	}
	field("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", ErrCoding)
	field("Transfer-Encoding: cow\r\nTransfer-Encoding: chunked", ErrCodingUnknown)
	field("Transfer-Encoding:\r\nTransfer-Encoding: chunked", ErrCoding)
	field("Transfer-Encoding: chunked\x00", ErrFieldValue)
	field("Transfer-Encoding: \rchunked", ErrFieldValue)
	field("Transfer-Encoding: chunked\r\nContent-Length: 5", ErrLengthAndCoding)
	field("Content-Length: 0\r\nTransfer-Encoding: cow", ErrLengthAndCoding)
	f("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", ErrCodingVersion)
	// Expect
	for _, v := range []string{"", "y 100-continue", "100-continue, x", "100", "100-continue;a"} {
		field("Content-Length: 1\r\nExpect: "+v, ErrExpect)
	}
	field("Expect: 100-continue\r\nExpect: x", ErrExpect)
}

// A fault of the whole head must not be found earlier than a fault of a later
// line, or the answer would depend on how the bytes were cut.
func TestRequestFaultOrder(t *testing.T) {
	in := []byte("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nbad line\r\n\r\n")
	for cut := range in {
		var r Request
		var m Mark
		_, err := r.Parse(in[:cut], &DefaultLimits, &m)
		if err == nil {
			_, err = r.Parse(in, &DefaultLimits, &m)
		}
		if err != ErrFieldName {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	}
}

func TestRequestLimits(t *testing.T) {
	f := func(name, in string, lim Limits, want *Error) {
		t.Helper()
		var r Request
		var m Mark
		if n, err := r.Parse([]byte(in), &lim, &m); err != want || (n > 0) != (want == nil) {
			t.Fatalf("%s: n %d, error %v, want %v", name, n, err, want)
		}
		if _, _, err := parseBytewise([]byte(in), &lim); err != want {
			t.Fatalf("%s byte by byte: %v, want %v", name, err, want)
		}
	}
	line := "GET /aaaa HTTP/1.1\r\n"
	head := line + "Host: h\r\nA: b\r\n\r\n"
	n := len(head)

	f("head of exactly the limit", head, Limits{HeadBytes: n, Fields: 2}, nil)
	f("bytes behind the head do not count", head+strings.Repeat("x", 99), Limits{HeadBytes: n, Fields: 2}, nil)
	f("one byte less", head, Limits{HeadBytes: n - 1, Fields: 2}, ErrHeadTooLarge)
	f("empty lines count", "\r\n"+head, Limits{HeadBytes: n, Fields: 2}, ErrHeadTooLarge)
	f("no end in sight", line+"X: "+strings.Repeat("a", 500), Limits{HeadBytes: 400, Fields: 2}, ErrHeadTooLarge)
	f("one field too many", head, Limits{HeadBytes: n, Fields: 1}, ErrTooManyFields)
	f("line of exactly the limit", head, Limits{HeadBytes: n, LineBytes: len(line), Fields: 2}, nil)
	f("line one byte longer", head, Limits{HeadBytes: n, LineBytes: len(line) - 1, Fields: 2}, ErrLineTooLong)
	f("line without end", "GET /"+strings.Repeat("a", 500), Limits{HeadBytes: 400, Fields: 2}, ErrLineTooLong)
	f("line without end over its own limit", "GET /"+strings.Repeat("a", 95), Limits{HeadBytes: 400, LineBytes: 100, Fields: 2}, ErrLineTooLong)
	f("long method", strings.Repeat("A", 70000)+" / HTTP/1.1\r\n", DefaultLimits, ErrLineTooLong)
	f("fields without end", line+strings.Repeat("X-A: b\r\n", 200), DefaultLimits, ErrTooManyFields)
	f("exactly the default number of fields", line+"Host: h\r\n"+strings.Repeat("X-A: b\r\n", 127)+"\r\n", DefaultLimits, nil)
	f("one more", line+"Host: h\r\n"+strings.Repeat("X-A: b\r\n", 128)+"\r\n", DefaultLimits, ErrTooManyFields)
}

// A drip of one byte at a time must not cost the square of the head's size.
func TestRequestDripIsLinear(t *testing.T) {
	in := []byte("GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 60000))
	var r Request
	var m Mark
	for i := range in {
		before := m.seen
		if n, err := r.Parse(in[:i], &DefaultLimits, &m); n != 0 || err != nil {
			t.Fatalf("at %d: %d %v", i, n, err)
		}
		if m.seen != i || before > m.seen {
			t.Fatalf("searched up to %d of %d", m.seen, i)
		}
	}
}

func TestAppendOriginForm(t *testing.T) {
	f := func(line, want string) {
		t.Helper()
		var r Request
		var m Mark
		if _, err := r.Parse([]byte(line+" HTTP/1.1\r\nHost: h:1\r\n\r\n"), &DefaultLimits, &m); err != nil {
			t.Fatal(err)
		}
		if got := string(r.AppendOriginForm(nil)); got != want {
			t.Fatalf("%s: got %q, want %q", line, got, want)
		}
	}
	f("GET /a%2fb?x=1;y", "/a%2fb?x=1;y")
	f("GET //a", "//a")
	f("GET /?", "/?")
	f("GET http://h", "/")
	f("GET http://h?", "/?")
	f("GET http://h/a?b", "/a?b")
	f("OPTIONS *", "*")
	f("CONNECT h:1", "")
}
