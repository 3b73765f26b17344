package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// reply is the answer to an HTTP request.
type reply struct {
	status int
	header http.Header
	body   string
}

// field returns a text of the JSON.
func (a reply) field(name string) string {
	all := map[string]any{}
	_ = json.Unmarshal([]byte(a.body), &all)
	text, _ := all[name].(string)
	return text
}

// post sends JSON to a method, which is named as in MessageHandlerService/Submit.
func (h *house) post(t *testing.T, method, body string, edit ...func(*http.Request)) reply {
	t.Helper()
	return h.send(t, http.DefaultClient, "http://"+h.conn.Target(), method, body, edit...)
}

func (h *house) send(
	t *testing.T, client *http.Client, base, method, body string, edit ...func(*http.Request),
) reply {
	t.Helper()
	url := base + "/msghandler.v1." + method
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(r)
	}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, string(text)}
}

func TestJSONIsServedBesideGRPC(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.alive(t)
	got := h.post(t, "MessageHandlerService/SendHalfMessage", `{"producer":"orders","callbackTarget":"orders:9000",
		"message":{"id":"1","exchange":"shop","routingKey":"paid","body":"e30="}}`)
	if got.status != http.StatusOK || got.field("state") != "STATE_PENDING" {
		t.Fatalf("got %v", got)
	}
	if stored := h.store.get("orders", "1"); string(stored.Body) != "{}" || stored.RoutingKey != "paid" {
		t.Errorf("stored: %+v", stored)
	}
	got = h.post(t, "AdminService/GetMessage", `{"producer":"orders","id":"none"}`)
	if got.status != http.StatusNotFound || got.field("code") != "not_found" ||
		got.field("reason") != "MESSAGE_NOT_FOUND" {
		t.Errorf("got %v", got)
	}
	h.alive(t)
}
