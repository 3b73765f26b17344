package wire_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msghandler/msghandler/test/wire"
)

func TestHTTPRequestsAndRepliesAreLost(t *testing.T) {
	t.Parallel()
	var served atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Token", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s got %s", r.URL.Path, body)
	}))
	t.Cleanup(server.Close)
	proxy := wire.HTTP(t, wire.Host(t, server.URL))
	post := func() (string, error) {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+proxy.Addr+"/shop/confirm",
			strings.NewReader(`{"producer":"orders","ids":["1","2"]}`))
		r.Header.Set("Authorization", "Bearer x")
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, response.Header["X-Token"], " ", string(body)), err
	}
	const passed = `418 [Bearer x] /shop/confirm got {"producer":"orders","ids":["1","2"]}`
	if got, err := post(); got != passed || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, passed)
	}
	for phase, want := range map[wire.Phase]int32{wire.Request: 0, wire.Reply: 1} {
		before := served.Load()
		proxy.On(func(e wire.Event) wire.Act {
			if messages := []wire.Message{{Key: "orders/1"}, {Key: "orders/2"}}; e.Name != "confirm" ||
				!reflect.DeepEqual(e.Messages, messages) {
				t.Errorf("the hook sees %+v", e)
			}
			return map[bool]wire.Act{true: wire.Cut}[e.Phase == phase]
		})
		if got, err := post(); err == nil || served.Load()-before != want {
			t.Errorf("a call lost %v its effect is served %d times, with %q", phase, served.Load()-before, got)
		}
	}
}
