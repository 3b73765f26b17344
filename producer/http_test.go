package producer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/proto/certs/certstest"
)

// anyone may call this producer.
var anyone = producer.Config{Coordinators: producer.Coordinators{Anyone: true}}

// served is a producer at an HTTP server of its own, below /msg.
type served struct {
	*httptest.Server
	markers *counting
	log     *bytes.Buffer
}

// serveHTTP starts a producer, with TLS where a configuration is given.
func serveHTTP(t *testing.T, config producer.Config, secure *tls.Config) *served {
	t.Helper()
	s := &served{markers: newCounting(), log: &bytes.Buffer{}}
	config.Name, config.Coordinator, config.Markers = "orders", "127.0.0.1:1", s.markers
	config.Logger = slog.New(slog.NewTextHandler(s.log, nil))
	p, err := producer.New(config)
	must(t, err)
	s.Server = httptest.NewUnstartedServer(http.StripPrefix("/msg", p.HTTPHandler()))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if s.TLS = secure; secure != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		s.Close()
		_ = p.Close(context.Background())
	})
	return s
}

// post makes a call, with headers as pairs of name and value, and returns status and body.
func (s *served) post(t *testing.T, path, body string, headers ...string) (code int, said string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/msg"+path, strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return s.send(t, http.DefaultClient, r)
}

func (s *served) send(t *testing.T, client *http.Client, r *http.Request) (code int, said string) {
	t.Helper()
	answer, err := client.Do(r)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(t, err)
	if json := answer.Header.Get("Content-Type") == "application/json"; json != (answer.StatusCode == http.StatusOK) {
		t.Errorf("%d with the type %s", answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	return answer.StatusCode, strings.TrimSpace(string(text))
}

func TestHTTPHandlerAnswersFromTheMarkers(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, anyone, nil)
	if _, err := s.markers.Store.Put(t.Context(), []string{"1001"}, marker.Committed); err != nil {
		t.Fatal(err)
	}
	const committed, of1002 = `{"id":"1001","verdict":"VERDICT_COMMITTED"}`, `{"id":"1002","verdict":"VERDICT_%s"}`
	for _, tc := range []struct{ body, want string }{
		{`{"producer":"orders","ids":["1001"],"final":false}`, committed},
		{`{"producer":"orders","ids":["1002"]}`, fmt.Sprintf(of1002, "UNKNOWN")},
		{`{"producer":"orders","ids":["1002"],"final":true,"more":1}`, fmt.Sprintf(of1002, "ROLLED_BACK")},
		{`{"producer":"orders","ids":["1002"],"final":false}`, fmt.Sprintf(of1002, "ROLLED_BACK")},
	} {
		code, said := s.post(t, "/confirm", tc.body)
		if code != 200 || !strings.HasPrefix(said, `{"confirmations":[`+tc.want+`],"markerStore":"`) {
			t.Errorf("%s: got %d %s", tc.body, code, said)
		}
	}
	if code, said := s.post(t, "/deleteBusiness", `{"producer":"orders","ids":["1001"]}`); code != 200 || said != "{}" {
		t.Errorf("got %d %s", code, said)
	}
	if found, _ := s.markers.Store.Lookup(t.Context(), []string{"1001"}, false); found["1001"] == marker.Committed {
		t.Error("the marker was not deleted")
	}
}

func TestHTTPHandlerRefusesBadCalls(t *testing.T) {
	t.Parallel()
	s := serveHTTP(t, anyone, nil)
	const good = `{"producer":"orders","ids":["1"]}`
	many := `{"producer":"orders","ids":["1"` + strings.Repeat(`,"1"`, 500) + `]}`
	for name, tc := range map[string]struct {
		path, body string
		headers    []string
		code       int
	}{
		"another path":     {"/other", good, nil, 404},
		"text":             {"/confirm", good, []string{"Content-Type", "text/plain"}, 415},
		"no JSON":          {"/confirm", "1001", nil, 400},
		"final as text":    {"/confirm", `{"producer":"orders","ids":["1"],"final":"true"}`, nil, 400},
		"too large":        {"/deleteBusiness", strings.Repeat(" ", 1<<20) + good, nil, 400},
		"no ids":           {"/confirm", `{"producer":"orders"}`, nil, 400},
		"too many ids":     {"/deleteBusiness", many, nil, 400},
		"another producer": {"/confirm", `{"producer":"stock","ids":["1"]}`, nil, 409},
	} {
		if code, said := s.post(t, tc.path, tc.body, tc.headers...); code != tc.code {
			t.Errorf("%s: got %d %s, want %d", name, code, said, tc.code)
		}
	}
	answer, err := http.Get(s.URL + "/msg/confirm")
	if err != nil || answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: got %v, %v", answer, err)
	}
	_ = answer.Body.Close()
	s.markers.fail = func(string) error { return errors.New("no such table") }
	for _, path := range []string{"/confirm", "/deleteBusiness"} {
		if code, said := s.post(t, path, good); code != 503 || strings.Contains(said, "table") {
			t.Errorf("%s with a failing store: got %d %s", path, code, said)
		}
	}
}

// The answer is complete within the coordinator's deadline, even if Resolve is not.
func TestHTTPHandlerKeepsTheDeadline(t *testing.T) {
	t.Parallel()
	resolving := anyone
	resolving.Resolve = func(ctx context.Context, _ string, _ bool) (marker.Verdict, error) {
		<-ctx.Done()
		return marker.Unknown, ctx.Err()
	}
	s := serveHTTP(t, resolving, nil)
	code, said := s.post(t, "/confirm", `{"producer":"orders","ids":["1"]}`, "Connect-Timeout-Ms", "200")
	if code != 200 || !strings.Contains(said, "VERDICT_UNAVAILABLE") {
		t.Errorf("got %d %s", code, said)
	}
}

func TestHTTPHandlerAdmitsCoordinatorsOnly(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	optional := a.Server("127.0.0.1")
	optional.ClientAuth = tls.VerifyClientCertIfGiven
	s := serveHTTP(t, producer.Config{Coordinators: producer.Coordinators{
		Names: []string{"dns:coordinator.shop"}, Tokens: []string{goodToken},
	}}, optional)
	for name, tc := range map[string]struct {
		as    *tls.Config
		token string
		code  int
	}{
		"a stranger":               {a.Client(), "", 401},
		"a token":                  {a.Client(), "Bearer " + goodToken, 200},
		"another token":            {a.Client(), "Bearer " + otherToken, 401},
		"a certificate":            {a.Client("coordinator.shop"), "", 200},
		"a neighbour":              {a.Client("stock.shop"), "", 403},
		"a neighbour with a token": {a.Client("stock.shop"), "Bearer " + goodToken, 200},
	} {
		tc.as.RootCAs = a.Pool()
		transport := &http.Transport{TLSClientConfig: tc.as}
		for path, body := range map[string]string{
			"/confirm": `{"producer":"orders","ids":["1001"],"final":true}`, "/deleteBusiness": `not even JSON`,
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/msg"+path, strings.NewReader(body))
			must(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", tc.token)
			want := tc.code
			if want == 200 && path == "/deleteBusiness" {
				want = 400
			}
			before := s.markers.calls
			code, said := s.send(t, &http.Client{Transport: transport}, r)
			if code != want || strings.Contains(said, goodToken) || (code != 200) != (s.markers.calls == before) {
				t.Errorf("%s at %s: got %d %s, want %d", name, path, code, said, want)
			}
		}
		transport.CloseIdleConnections()
	}
	if strings.Contains(s.log.String(), "Coordinators is empty") {
		t.Errorf("the producer warns:\n%s", s.log)
	}
}
