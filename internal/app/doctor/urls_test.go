package doctor_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// serveURL serves a handler on a free port and returns the URL.
func serveURL(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// byHTTP serves a producer by HTTP. Every error is answered with 500.
func byHTTP(api pb.ProducerServiceServer) http.Handler {
	answer := func(w http.ResponseWriter, value any, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
	read := func(r *http.Request) (asked struct {
		Producer string
		IDs      []string
		Final    bool
	},
	) {
		_ = json.NewDecoder(r.Body).Decode(&asked)
		return asked
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /confirm", func(w http.ResponseWriter, r *http.Request) {
		asked := read(r)
		said, err := api.Confirm(r.Context(), &pb.ConfirmRequest{
			Producer: asked.Producer, Ids: asked.IDs, Final: asked.Final,
		})
		all := []map[string]string{}
		for _, c := range said.GetConfirmations() {
			all = append(all, map[string]string{"id": c.GetId(), "verdict": c.GetVerdict().String()})
		}
		answer(w, map[string]any{"confirmations": all}, err)
	})
	mux.HandleFunc("POST /deleteBusiness", func(w http.ResponseWriter, r *http.Request) {
		asked := read(r)
		_, err := api.DeleteBusiness(r.Context(), &pb.DeleteBusinessRequest{Producer: asked.Producer, Ids: asked.IDs})
		answer(w, struct{}{}, err)
	})
	return mux
}

// A breach is found by HTTP too. A verdict that is none has no form of the contract there.
func TestEachBreachByHTTPIsFound(t *testing.T) {
	t.Parallel()
	for breach, want := range breaches {
		t.Run(breach, func(t *testing.T) {
			t.Parallel()
			if breach == "invents a verdict" {
				want = "producer-fails"
			}
			found := verify(t, serveURL(t, byHTTP(&book{breach: breach, stone: map[string]bool{}})), "1001")
			if names := complaints(t, found); !slices.Equal(names, []string{want}) {
				t.Errorf("found %q, want %q:\n%+v", names, want, found)
			}
		})
	}
}

// answering answers every call in the same way.
func answering(status int, contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

const login = "http://login.shop"

// wrongEndpoints are endpoints that a coordinator cannot ask, with the finding and a part of what is said.
var wrongEndpoints = map[string]struct {
	handler http.Handler
	finding string
	says    string
}{
	"false":        {answering(200, "application/json", "false"), "producer-no-verdict", "a bare boolean"},
	"true":         {answering(200, "application/json", "true"), "producer-no-verdict", "a bare boolean"},
	"text":         {answering(200, "text/plain", "COMMITTED"), "producer-no-verdict", "text/plain"},
	"empty":        {answering(200, "application/json", ""), "producer-no-verdict", "empty"},
	"no content":   {answering(204, "", ""), "producer-no-verdict", "204"},
	"status":       {answering(200, "application/json", `{"status":"COMMITTED"}`), "producer-no-verdict", "confirmations"},
	"page":         {answering(404, "text/html", "<html>"), "producer-no-service", "POST /confirm"},
	"error":        {answering(500, "text/plain", "no table"), "producer-fails", "no table"},
	"login":        {http.RedirectHandler(login, http.StatusFound), "producer-no-service", login},
	"unauthorized": {answering(401, "text/plain", "who?"), "producer-refuses", "callbacks.token_file"},
	"overloaded":   {answering(503, "text/plain", ""), "producer-away", "503"},
	"no row, no": {
		byHTTP(other{confirm: say(pb.Verdict_VERDICT_ROLLED_BACK)}), "producer-hasty",
		"a business that is still running",
	},
}

func TestWrongEndpointIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range wrongEndpoints {
		found := verify(t, serveURL(t, tc.handler))
		if names := complaints(t, found); !slices.Equal(names, []string{tc.finding}) ||
			doctor.Worst(found) != doctor.Trouble {
			t.Errorf("%s: found %q, want %q:\n%+v", name, names, tc.finding, found)
			continue
		}
		if f := found[0]; !strings.Contains(f.What+f.Why+f.Remedy, tc.says) {
			t.Errorf("%s: found %+v, want %q", name, f, tc.says)
		}
	}
	secure := httptest.NewTLSServer(nil)
	t.Cleanup(secure.Close)
	found := verify(t, "http"+strings.TrimPrefix(secure.URL, "https"))
	if names := complaints(t, found); !slices.Equal(names, []string{"producer-no-service"}) ||
		!strings.Contains(found[0].Remedy, "write https://") {
		t.Errorf("a server of TLS: %+v", found)
	}
	if found := verify(t, "http://"+serveProducer(t, sdk(t, "127.0.0.1:1").Register)); !slices.Equal(
		complaints(t, found), []string{"producer-no-service"}) {
		t.Errorf("a server of gRPC: %+v", found)
	}
}

// A producer whose TLS is chosen by its URL is asked once without the client certificate.
func TestCertificateByHTTPSIsDemanded(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	a := certstest.NewAuthority(t)
	c.Callbacks.Certificates.CA = a.File
	c.Callbacks.Certificates.Cert, c.Callbacks.Certificates.Key = a.Issue("coordinator.shop")
	server := httptest.NewUnstartedServer(byHTTP(&book{stone: map[string]bool{}}))
	server.TLS = a.Server("127.0.0.1")
	server.TLS.ClientAuth = tls.VerifyClientCertIfGiven
	server.StartTLS()
	t.Cleanup(server.Close)
	c.Producers = map[string]config.Producer{"orders": {Target: server.URL}}
	found := doctor.Verify(t.Context(), doctor.Examination{Settings: c}, "orders", "")
	if names := complaints(t, found); !slices.Equal(names, []string{"producer-unguarded"}) {
		t.Errorf("found %q: %+v", names, found)
	}
}
