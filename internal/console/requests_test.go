package console_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

// pipes is a listener without a network, whose connections stand still in a bubble.
type pipes struct {
	dialled chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.dialled:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// say opens a connection and sends a text.
func (p *pipes) say(t *testing.T, text string) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	p.dialled <- there
	if _, err := io.WriteString(here, text); err != nil {
		t.Fatal(err)
	}
	return here
}

// serveInBubble is a console with a check that blocks until its channel is closed.
func serveInBubble(t *testing.T) (c *console.Console, p *pipes, asked, release chan struct{}) {
	t.Helper()
	asked, release = make(chan struct{}), make(chan struct{})
	c = console.New(console.Config{
		Stats: func(context.Context) ([]halfmsg.Stat, error) { return nil, nil },
		Checks: []console.Check{{Name: "held", Required: true, Run: func(context.Context) error {
			close(asked)
			<-release
			return nil
		}}},
	})
	p = &pipes{dialled: make(chan net.Conn), closed: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- c.Serve(p) }()
	t.Cleanup(func() {
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c, p, asked, release
}

const whole = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

func TestStopAwaitsNoIncompleteRequests(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing":                 "",
		"half a header":           "GET /healthz HTTP/1.1\r\nHos",
		"half a form":             "POST /change HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\naction",
		"half of what none reads": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
		"half a chunk":            "POST /change HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nact",
		"half a second request":   whole + "GET /hea",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, p, _, _ := serveInBubble(t)
				client := p.say(t, "")
				go func() { _, _ = io.WriteString(client, sent) }()
				if strings.HasPrefix(sent, whole) {
					if answer, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil ||
						answer.StatusCode != http.StatusOK {
						t.Errorf("got %v, %v", answer, err)
					}
				}
				go func() { _, _ = io.Copy(io.Discard, client) }()
				synctest.Wait() // the body is complete
				began := time.Now()
				if err := c.Stop(context.Background()); err != nil {
					t.Error(err)
				}
				// In a bubble time passes only while all wait.
				if took := time.Since(began); took > time.Second {
					t.Errorf("the stop took %s", took)
				}
			})
		})
	}
}

func TestAStopWaitsForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p, asked, release := serveInBubble(t)
		client := p.say(t, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-asked
		stopped := make(chan error, 1)
		go func() { stopped <- c.Stop(context.Background()) }()
		time.Sleep(10 * time.Second) // of the bubble
		select {
		case err := <-stopped:
			t.Fatalf("the stop did not wait: %v", err)
		default:
		}
		close(release)
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		must.Succeed(t, err)
		if body, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(body), `"ready": false`) {
			t.Errorf("got %q, %v", body, err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestAnOversizedRequestIsRefused(t *testing.T) {
	r := start(t)
	for size, want := range map[int]string{512 << 10: "Invalid selection", 512<<10 + 1: "select fewer messages"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/change",
			strings.NewReader("x="+strings.Repeat("y", size-2)))
		must.Succeed(t, err)
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%d bytes: got %s, %.300q, %v; want %q", size, answer.Status, body, fmt.Sprint(err), want)
		}
	}
}
