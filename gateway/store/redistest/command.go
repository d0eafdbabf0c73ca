package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Do executes one command on a connection of its own, and returns the answer as
// text: the elements of an array are lines.
func (s *Server) Do(command ...string) string {
	s.t.Helper()
	v, err := s.Try(command...)
	if err != nil {
		s.t.Fatalf("%v: %v", command, err)
	}
	return v
}

// Try is Do for a command that may fail.
func (s *Server) Try(command ...string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, patience/2)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience / 2))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(command))
	for _, arg := range command {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	return readAnswer(bufio.NewReader(c))
}

func readAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '+', ':':
		return text, nil
	case '-':
		return "", errors.New(text)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return "", err
	}
	switch kind {
	case '$':
		b := make([]byte, n+2)
		_, err := io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		lines := make([]string, n)
		for i := range lines {
			if lines[i], err = readAnswer(r); err != nil {
				return "", err
			}
		}
		return strings.Join(lines, "\n"), nil
	}
	return "", fmt.Errorf("an answer of type %q", kind)
}
