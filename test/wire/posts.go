package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path"
	"sync"
	"testing"
)

// Posts stands in front of a server of HTTP and JSON, such as the API of a coordinator or the callbacks of a producer.
// The last part of a path names the event. The methods of Posts are safe for concurrent use.
type Posts struct {
	// Addr is the proxy's address: HOST:PORT.
	Addr string

	target string
	client *http.Client
	mu     sync.Mutex
	hook   Hook
}

// HTTP stands in front of a server until the test ends. The hook may lose the request or the reply of any call, with
// its connection.
func HTTP(t testing.TB, addr string) *Posts {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Posts{Addr: listener.Addr().String(), target: addr, client: &http.Client{Transport: &http.Transport{}}}
	server := &http.Server{Handler: p}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = server.Close()
		p.client.CloseIdleConnections()
		serving.Wait()
	})
	return p
}

// On has a hook decide about every call from now on, once for the request and once for the reply; nil lets all pass.
func (p *Posts) On(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// ServeHTTP implements http.Handler. A lost request or reply ends as a lost connection.
func (p *Posts) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	event := Event{Name: path.Base(r.URL.Path), Messages: posted(body)}
	p.decide(r, event)
	request, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+p.target+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request.Header = r.Header.Clone()
	response, err := p.client.Do(request)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	event.Phase = Reply
	p.decide(r, event)
	for name, values := range response.Header {
		to.Header()[name] = values
	}
	to.WriteHeader(response.StatusCode)
	_, _ = to.Write(answer)
}

// decide asks the hook, and does not return for a call that is not passed on.
func (p *Posts) decide(r *http.Request, event Event) {
	p.mu.Lock()
	hook := p.hook
	p.mu.Unlock()
	if hook == nil {
		return
	}
	switch hook(event) {
	case Cut:
		panic(http.ErrAbortHandler)
	case Silence:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// posted reads which messages a call is about.
func posted(body []byte) (all []Message) {
	var request struct {
		Producer, ID string
		IDs          []string
		Message      struct{ ID string }
	}
	if json.Unmarshal(body, &request) != nil {
		return nil // the server will name the error
	}
	for _, id := range append(request.IDs, request.ID, request.Message.ID) {
		if id != "" {
			all = append(all, Message{Key: request.Producer + "/" + id})
		}
	}
	return all
}
