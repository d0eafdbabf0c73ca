package main

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"sluice/codec/http1"
)

// An httpLoad keeps one request in flight on each of its connections. It is one
// thread on one core that polls sockets itself, as wrk and the C tools do, so
// that it is not the generator that a measurement waits for.
type httpLoad struct {
	epoll int
	conns []*loadConn
	out   []byte
}

// A loadConn is one connection to the server.
type loadConn struct {
	fd     int
	talker talker
	in     []byte
	have   int // bytes in in
	head   http1.Response
	mark   http1.Mark
	body   http1.Body
	inBody bool
	due    time.Time // of a paced request
}

// answerPatience is how long a whole load may see no answer.
const answerPatience = 10 * time.Second

// dialLoad opens a connection to a port of 127.0.0.1 for each talker.
func dialLoad(port int, talkers []talker) (*httpLoad, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	g := &httpLoad{epoll: epoll}
	for i, t := range talkers {
		c := &loadConn{talker: t, in: make([]byte, 64<<10)}
		if c.fd, err = dialBlocking(port); err == nil {
			g.conns = append(g.conns, c)
			err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
		}
		if err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// dialBlocking connects a socket whose calls block: it is read when it is ready
// only, and what is written fits its buffer.
func dialBlocking(port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	addr := &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())}
	if err = unix.Connect(fd, addr); err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

func (g *httpLoad) close() {
	for _, c := range g.conns {
		unix.Close(c.fd)
	}
	unix.Close(g.epoll)
}

// run loads the server from the given core for some seconds and until all is
// answered, and returns the number of answers.
func (g *httpLoad) run(core string, seconds float64) (answers int, err error) {
	failed := onCore(core, func() error {
		answers, err = g.load(time.Now().Add(time.Duration(seconds * float64(time.Second))))
		return err
	})
	return answers, failed
}

func (g *httpLoad) load(end time.Time) (answers int, err error) {
	events := make([]unix.EpollEvent, len(g.conns))
	busy := len(g.conns)
	for _, c := range g.conns {
		if err := g.send(c); err != nil {
			return 0, err
		}
	}
	for busy > 0 {
		n, err := unix.EpollWait(g.epoll, events, int(answerPatience/time.Millisecond))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return answers, err
		}
		if n == 0 {
			return answers, fmt.Errorf("no answer for %v on any of %d connections", answerPatience, busy)
		}
		over := !time.Now().Before(end)
		for i := range events[:n] {
			c := g.conns[events[i].Fd]
			done, err := c.receive()
			if err != nil {
				return answers, err
			}
			if !done {
				continue
			}
			if answers++; over {
				busy--
			} else if err := g.send(c); err != nil {
				return answers, err
			}
		}
	}
	return answers, nil
}

func (g *httpLoad) send(c *loadConn) (err error) {
	if g.out, err = c.talker.appendRequest(g.out[:0]); err != nil {
		return err
	}
	n, err := unix.Write(c.fd, g.out)
	if err == nil && n < len(g.out) {
		err = fmt.Errorf("the kernel takes %d bytes of a request of %d", n, len(g.out))
	}
	return err
}

// receive reads once; done tells that the answer is whole.
func (c *loadConn) receive() (done bool, err error) {
	n, err := unix.Read(c.fd, c.in[c.have:])
	if err != nil {
		return false, err
	}
	if n == 0 {
		return false, fmt.Errorf("the server closed a connection")
	}
	c.have += n
	b := c.in[:c.have]
	if !c.inBody {
		n, fault := c.head.Parse(b, &http1.DefaultLimits, &c.mark, http1.MethodPost)
		switch {
		case fault != nil:
			return false, fmt.Errorf("answer: %s", fault.Reason)
		case n == 0:
			return false, nil
		case c.head.Status != 200:
			return false, fmt.Errorf("answer: status %d", c.head.Status)
		}
		c.body.Start(&c.head.Head)
		c.inBody = true
		b = b[n:]
	}
	for {
		data, n, done, fault := c.body.Next(b, &http1.DefaultLimits)
		if fault != nil {
			return false, fmt.Errorf("answer: %s", fault.Reason)
		}
		if len(data) > 0 {
			if err := c.talker.take(data); err != nil {
				return false, err
			}
		}
		if b = b[n:]; done {
			break
		}
		if len(b) == 0 {
			c.have = 0
			return false, nil
		}
	}
	if len(b) > 0 {
		return false, fmt.Errorf("answer: %d bytes behind its end", len(b))
	}
	c.have, c.mark, c.inBody = 0, http1.Mark{}, false
	return true, c.talker.ended()
}
