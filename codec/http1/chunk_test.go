package http1

import (
	"bytes"
	"strings"
	"testing"
)

// readChunks feeds b in pieces of the given size and returns the payload and how
// many bytes were used.
func readChunks(b []byte, size int, lim *Limits) (payload []byte, used int, done bool, err *Error) {
	var d ChunkReader
	for used < len(b) && !done && err == nil {
		piece := b[used:min(used+size, len(b))]
		var data []byte
		var n int
		data, n, done, err = d.Next(piece, lim)
		if n < len(piece) && len(data) == 0 && !done && err == nil {
			panic("stopped without a reason")
		}
		payload = append(payload, data...)
		used += n
	}
	return payload, used, done, err
}

func TestChunkReaderSuccess(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		for size := 1; size <= len(in)+4; size++ {
			got, used, done, err := readChunks([]byte(in+"next"), size, &DefaultLimits)
			if err != nil || !done || used != len(in) || string(got) != want {
				t.Fatalf("%q in pieces of %d: %q, used %d, done %v, error %v", in, size, got, used, done, err)
			}
		}
		for i := range in {
			if _, used, done, err := readChunks([]byte(in[:i]), len(in), &DefaultLimits); err != nil || done || used != i {
				t.Fatalf("prefix %q: used %d, done %v, error %v", in[:i], used, done, err)
			}
		}
	}
	f("0\r\n\r\n", "")
	f("5\r\nhello\r\n0\r\n\r\n", "hello")
	f("5\r\nhello\r\n6\r\n world\r\n00\r\n\r\n", "hello world")
	f("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789")
	// leading zeros, up to 16 digits
	f("0000000000000005\r\nhello\r\n0000000000000000\r\n\r\n", "hello")
	// payload that looks like chunked coding
	f("5\r\n0\r\n\r\n\r\n0\r\n\r\n", "0\r\n\r\n")
	// extensions: name, value, quoted value, blanks where the grammar has them
	f("5;a\r\nhello\r\n0;b=c\r\n\r\n", "hello")
	f("5;a=b;c=\"d;\\\"e\t\"\r\nhello\r\n0\r\n\r\n", "hello")
	f("5 ; a = b\t;\tc = \"d\" ;e\r\nhello\r\n0\r\n\r\n", "hello")
	f("5;a=\"\"\r\nhello\r\n0\r\n\r\n", "hello")
	// trailers
	f("0\r\nX-A: b\r\nX-B:\r\n\r\n", "")
	f("5\r\nhello\r\n0\r\nContent-Length: 3\r\nX: a\tb\xff\r\n\r\n", "hello")
	// a thousand one-byte chunks
	f(strings.Repeat("1\r\na\r\n", 100)+"0\r\n\r\n", strings.Repeat("a", 100))
}

func TestChunkReaderFailure(t *testing.T) {
	f := func(in string, want *Error) {
		t.Helper()
		for _, size := range []int{1, 2, 3, 7, len(in)} {
			if _, _, done, err := readChunks([]byte(in), size, &DefaultLimits); err != want || done {
				t.Fatalf("%q in pieces of %d: done %v, error %v, want %v", in, size, done, err, want)
			}
		}
	}
	// sizes
	for _, s := range []string{"", "0x5", "0X5", "5these", "5h", " 5", "\xa05", "%35", "-5", "+5", "5_0", "g", "5.", "\t5", "5\"", "5,", "5="} {
		f(s+"\r\nhello\r\n0\r\n\r\n", ErrChunkSize)
	}
	f("8000000000000000\r\n", ErrChunkTooLarge)
	f("ffffffffffffffff\r\n", ErrChunkTooLarge)
	f("10000000000000005\r\n", ErrChunkTooLarge)
	f("00000000000000005\r\n", ErrChunkTooLarge)
	f("1"+strings.Repeat("0", 63)+"5\r\n", ErrChunkTooLarge)
	// line ends
	f("5\nhello\r\n0\r\n\r\n", ErrChunkLine)
	f("5\rhello\r\n0\r\n\r\n", ErrChunkLine)
	f("5\r\nhello\n0\r\n\r\n", ErrChunkEnd)
	f("5\r\nhelloXX0\r\n\r\n", ErrChunkEnd)
	f("5\r\nhello!\r\n0\r\n\r\n", ErrChunkEnd)
	f("5\r\nhello\r0\r\n\r\n", ErrChunkEnd)
	f("0\r\n\nGET", ErrChunkLine)
	f("0\r\rGET", ErrChunkLine)
	f("0\r\n\rGET", ErrChunkLine)
	f("0\n\n", ErrChunkLine)
	// a blank in front of the line's end, extensions out of grammar
	for _, s := range []string{" ", "\t", ";", ";;a", ";@", ";a\x7f", ";a b", ";a\x00b", ";a\rb", ";a=", ";a=;b", ";a=b ", ";a ", ";a=\"b", ";a=\"b\x00\"", ";a=\"b\"c", ";=b", " a",
		";a\nb", ";a=\"\\\x00\"", ";a=\"\n\"", ";a=b=c"} {
		want := ErrChunkExtension
		if s == ";a\rb" {
			want = ErrChunkLine
		}
		f("5"+s+"\r\nhello\r\n0\r\n\r\n", want)
	}
	// trailers obey the syntax of fields
	f("0\r\nGET /x HTTP/1.1\r\n\r\n", ErrFieldName)
	f("0\r\n X: b\r\n\r\n", ErrFold)
	f("0\r\nX: b\r\n c\r\n\r\n", ErrFold)
	f("0\r\nX : b\r\n\r\n", ErrFieldName)
	f("0\r\n: b\r\n\r\n", ErrFieldName)
	f("0\r\nX: a\nb\r\n\r\n", ErrChunkLine)
	f("0\r\nX: a\rb\r\n\r\n", ErrChunkLine)
	f("0\r\nX: a\x00\r\n\r\n", ErrFieldValue)
	// bounds
	f("0\r\n"+strings.Repeat("X: a\r\n", 129), ErrTooManyFields)
	f("0\r\nX: "+strings.Repeat("a", 70000), ErrTrailerTooLarge)
	f("5;"+strings.Repeat("a", 20000), ErrChunkOverhead)
	f(strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\na\r\n", 20), ErrChunkOverhead)
}

// Extensions are paid for by payload, so that a long body may have many.
func TestChunkExtensionsPaidByPayload(t *testing.T) {
	chunk := "400;" + strings.Repeat("a", 1000) + "\r\n" + strings.Repeat("x", 1024) + "\r\n"
	payload, _, done, err := readChunks([]byte(strings.Repeat(chunk, 1000)+"0\r\n\r\n"), 4096, &DefaultLimits)
	if err != nil || !done || len(payload) != 1024000 {
		t.Fatalf("%d bytes, done %v, error %v", len(payload), done, err)
	}
}

func TestChunkLargestSize(t *testing.T) {
	var d ChunkReader
	data, n, done, err := d.Next([]byte("7FFFFFFFFFFFFFFF\r\nh"), &DefaultLimits)
	if string(data) != "h" || n != 19 || done || err != nil || d.left != 1<<63-2 {
		t.Fatalf("%q %d %v %v left %d", data, n, done, err, d.left)
	}
}

func TestBody(t *testing.T) {
	f := func(h Head, in, want string, wantUsed int, wantDone bool, wantEOF *Error) {
		t.Helper()
		for size := 1; size <= len(in)+1; size++ {
			var d Body
			d.Start(&h)
			var got []byte
			used := 0
			done := d.Done()
			for used < len(in) && !done {
				data, n, end, err := d.Next([]byte(in[used:min(used+size, len(in))]), &DefaultLimits)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, data...)
				used += n
				done = end
			}
			if string(got) != want || used != wantUsed || done != wantDone || d.Done() != done || d.EOF() != wantEOF {
				t.Fatalf("%q in pieces of %d: %q, used %d, done %v, at the end %v", in, size, got, used, done, d.EOF())
			}
			if _, n, end, _ := d.Next([]byte("more"), &DefaultLimits); done && (n != 0 || !end) {
				t.Fatalf("used %d bytes behind the end", n)
			}
		}
	}
	f(Head{Framing: NoBody}, "xyz", "", 0, true, nil)
	f(Head{Framing: Length, Length: 3}, "xyzab", "xyz", 3, true, nil)
	f(Head{Framing: Length, Length: 3}, "xy", "xy", 2, false, ErrBodyCut)
	f(Head{Framing: Chunked}, "2\r\nxy\r\n0\r\n\r\nab", "xy", 12, true, nil)
	f(Head{Framing: Chunked}, "2\r\nxy\r\n0\r\n", "xy", 10, false, ErrBodyCut)
	f(Head{Framing: UntilClose}, "xyz", "xyz", 3, false, nil)

	var d Body
	d.Start(&Head{Framing: Length, Length: 9})
	d.Next([]byte("abc"), &DefaultLimits)
	if d.Remaining() != 6 {
		t.Fatalf("%d remain", d.Remaining())
	}
	d.Start(&Head{Framing: Chunked})
	if d.Remaining() != -1 {
		t.Fatal("the rest of a chunked body is known")
	}
	d = Body{}
	if d.Remaining() != 0 || !d.Done() {
		t.Fatal("the zero value is not done")
	}
}

func TestAppendChunks(t *testing.T) {
	const longest = 16 + 2
	for n := 1; n < 100000; n = n*3 + 1 {
		payload := bytes.Repeat([]byte("p"), n)
		b := AppendChunkHeader(nil, n)
		if len(b) > longest {
			t.Fatalf("header of %d bytes", len(b))
		}
		b = append(append(append(b, payload...), CRLF...), LastChunk...)
		got, used, done, err := readChunks(b, len(b), &DefaultLimits)
		if !bytes.Equal(got, payload) || used != len(b) || !done || err != nil {
			t.Fatalf("%d bytes: used %d, done %v, error %v", n, used, done, err)
		}
	}
	if n := len(AppendChunkHeader(nil, 1<<63-1)); n != longest {
		t.Fatalf("longest header has %d bytes", n)
	}
}
