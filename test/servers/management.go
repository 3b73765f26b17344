package servers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"testing"
	"time"
)

// Management is RabbitMQ's HTTP API. It is safe for concurrent use.
type Management struct {
	// URL is http://USER:PASSWORD@HOST:PORT.
	URL string
	// Vhost is the virtual host that Connections means.
	Vhost string
}

// Call sends in as JSON, unless in is nil, and reads the answer into out, unless out is nil. path begins with /api/
// and is escaped by the caller. Any status but 2xx is an error that quotes the answer.
func (m *Management) Call(method, path string, in, out any) error {
	return call(m.URL, method, path, in, out)
}

// Connections names every client connection of the virtual host in the API's view.
func (m *Management) Connections() (names []string, err error) {
	var connections []struct {
		Name string `json:"name"`
	}
	path := "/api/vhosts/" + url.PathEscape(m.Vhost) + "/connections"
	err = m.Call(http.MethodGet, path, nil, &connections)
	for _, c := range connections {
		names = append(names, c.Name)
	}
	return names, err
}

// CloseConnections cuts these connections. A connection that has ended meanwhile is no error.
func (m *Management) CloseConnections(names []string) {
	for _, name := range names {
		_ = m.Call(http.MethodDelete, "/api/connections/"+url.PathEscape(name), nil, nil)
	}
}

func call(base, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequest(method, base+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case response.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// client keeps no connection open, because an open connection would look like a leaked goroutine.
var client = &http.Client{
	Timeout:   30 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// run runs a program to its end; a failure ends the test with the program's output.
func run(t testing.TB, path string, args ...string) {
	t.Helper()
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", path, args, err, out)
	}
}
