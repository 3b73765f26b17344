package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
)

// maxBody bounds the body of a request. The form of a selection of a thousand names fits.
const maxBody = 512 << 10

// requests knows which connections have a complete request that is being answered. A stop waits for these connections
// only, because an incomplete request may never be completed.
type requests struct {
	mu        sync.Mutex
	answering map[net.Conn]bool // every open connection
	ended     bool
}

func newRequests() *requests { return &requests{answering: map[net.Conn]bool{}} }

// connKey is the connection of a request in its context.
type connKey struct{}

// withConn is the ConnContext of the server.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// heed is the ConnState of the server. A connection is idle again once its answer has been written.
func (r *requests) trackState(conn net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew, http.StateIdle:
		r.answering[conn] = false
		if r.ended {
			_ = conn.Close() // the client learns of the close
		}
	case http.StateClosed, http.StateHijacked:
		delete(r.answering, conn)
	case http.StateActive: // a part of a request is there, which is nothing to answer yet
	}
}

// begin records a complete request, and returns false if the console is already stopping.
func (r *requests) begin(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.answering[conn] = true
	return true
}

// end closes all connections except those with a request being answered, which end with their answer.
func (r *requests) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for conn, answering := range r.answering {
		if !answering {
			_ = conn.Close()
		}
	}
}

// afterBody calls the next handler when the request is complete.
func (r *requests) afterBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			http.Error(w, "The request is larger than 512 KiB: select fewer messages.", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "The request did not arrive whole: send it again.", http.StatusRequestTimeout)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		if conn, _ := request.Context().Value(connKey{}).(net.Conn); r.begin(conn) {
			next.ServeHTTP(w, request)
		}
	})
}
