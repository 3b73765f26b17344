package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// shop is a producer by HTTP that has committed everything, and whose answers a test replaces.
type shop struct {
	url string

	mu sync.Mutex
	// refuse answers a call in another way, if it returns true.
	refuse func(w http.ResponseWriter, ids []string) bool
	// asked are the ids of each Confirm.
	asked [][]string
}

func startShop(t *testing.T, refuse func(http.ResponseWriter, []string) bool) *shop {
	t.Helper()
	s := &shop{refuse: refuse}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// ServeHTTP answers both calls: the object of a Confirm serves a DeleteBusiness as well.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var call struct{ IDs []string }
	_ = json.NewDecoder(r.Body).Decode(&call)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.URL.Path == "/confirm" {
		s.asked = append(s.asked, call.IDs)
		if s.refuse != nil && s.refuse(w, call.IDs) {
			return
		}
	}
	all := []map[string]string{}
	for _, id := range call.IDs {
		all = append(all, map[string]string{"id": id, "verdict": "VERDICT_COMMITTED"})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"confirmations": all})
}

func (s *shop) become(refuse func(http.ResponseWriter, []string) bool) (calls int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
	return len(s.asked)
}

func (s *shop) calls() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// soon makes the loops quick.
func soon(c *config.Config) {
	c.Confirm.Schedule, c.Confirm.After = "@every 50ms", 50*time.Millisecond
	c.Confirm.Backoff = []time.Duration{50 * time.Millisecond}
}

func sendHalf(t *testing.T, r *running, target string, id string) {
	t.Helper()
	api := r.producers(t)
	if _, err := api.SendHalfMessage(t.Context(), &msghandlerv1.SendHalfMessageRequest{
		Producer: "orders", CallbackTarget: target, Message: &msghandlerv1.Message{Id: id, RoutingKey: "paid"},
	}); err != nil {
		t.Fatal(err)
	}
}

func (r *running) message(t *testing.T, id string) *adminv1.MessageRecord {
	t.Helper()
	answer, err := r.admin(t).GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: id})
	must.Succeed(t, err)
	return answer.GetRecord()
}

// An answer by HTTP that is none costs no attempt, and the message says why it waits.
func TestMessageWaitsForAnswerByHTTP(t *testing.T) {
	t.Parallel()
	r := start(t, settings(soon))
	r.awaitReady(t)
	paid := r.queue(t, "paid")
	answers := func(status int, body string) func(http.ResponseWriter, []string) bool {
		return func(w http.ResponseWriter, _ []string) bool {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", "http://elsewhere.shop/")
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, body)
			return true
		}
	}
	s := startShop(t, answers(200, "false"))
	sendHalf(t, r, s.url, "1001")
	for _, mode := range []struct {
		status     int
		body, says string
	}{
		{200, "false", "a bare boolean"}, {503, "", "HTTP status 503"}, {307, "", "http://elsewhere.shop"},
	} {
		s.become(answers(mode.status, mode.body))
		servers.Eventually(t, 30*time.Second, "the message says "+mode.says, func() bool {
			m := r.message(t, "1001")
			return m.GetState() == msghandlerv1.State_STATE_PENDING && m.GetConfirmAttempts() == 0 &&
				strings.Contains(m.GetLastError(), mode.says)
		})
	}
	s.become(nil)
	if got := <-paid; got.MessageId != "1001" {
		t.Errorf("got %s", got.MessageId)
	}
}

// A message whose calls end with 500 is asked about alone, and delays no other.
func TestPoisonByHTTPDelaysNoOther(t *testing.T) {
	t.Parallel()
	r := start(t, settings(soon))
	r.awaitReady(t)
	paid := r.queue(t, "paid")
	s := startShop(t, func(w http.ResponseWriter, ids []string) bool {
		if slices.Contains(ids, "poison") {
			http.Error(w, "value too long", http.StatusInternalServerError)
		}
		return slices.Contains(ids, "poison")
	})
	const others = 30
	sendHalf(t, r, s.url, "poison")
	for i := range others {
		sendHalf(t, r, s.url, fmt.Sprint(i))
	}
	for range others {
		if got := <-paid; got.MessageId == "poison" {
			t.Fatal("the poison message was delivered")
		}
	}
	servers.Eventually(t, 30*time.Second, "the poison message is asked about alone", func() bool {
		return slices.ContainsFunc(s.calls(), func(ids []string) bool { return slices.Equal(ids, []string{"poison"}) })
	})
	servers.Eventually(t, 30*time.Second, "its record says why, at the cost of no attempt", func() bool {
		m := r.message(t, "poison")
		return m.GetConfirmAttempts() == 0 && strings.Contains(m.GetLastError(), "value too long")
	})
	s.become(nil)
	if got := <-paid; got.MessageId != "poison" {
		t.Errorf("got %s", got.MessageId)
	}
}

// A producer with the SDK and an HTTPS port only, which its messages name, is called with the certificate of
// callbacks.tls_cert.
func TestProducerByHTTPSIsServed(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	server := httptest.NewUnstartedServer(nil)
	server.TLS = a.Server("127.0.0.1")
	server.StartTLS()
	t.Cleanup(server.Close)
	r := start(t, settings(soon, func(c *config.Config) {
		c.Callbacks.Certificates.CA = a.File
		c.Callbacks.Certificates.Cert, c.Callbacks.Certificates.Key = a.Issue("coordinator.shop")
	}))
	r.awaitReady(t)
	paid := r.queue(t, "paid")
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: r.GRPCAddr(), CallbackTarget: server.URL + "/msg", Markers: memory.New(),
		Coordinators: producer.Coordinators{Names: []string{"dns:coordinator.shop"}},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	server.Config.Handler = http.StripPrefix("/msg", p.HTTPHandler())
	message := producer.Message{ID: "1001", RoutingKey: "paid"}
	must.Succeed(t, p.Send(t.Context(), message, func(context.Context) error { return nil }))
	if got := <-paid; got.MessageId != "1001" {
		t.Errorf("got %s", got.MessageId)
	}
}
