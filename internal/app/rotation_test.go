package app_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/issuer"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// rotation is a coordinator all of whose secrets stand in files.
type rotation struct {
	*running
	t      *testing.T
	dir    string
	redis  *servers.RedisServer
	broker *wire.Proxy
	other  *wire.Proxy
	// shown are the secrets that the coordinator has shown to others.
	shown  shownSecrets
	hook   *httptest.Server
	shop   *httptest.Server
	issuer *issuer.Issuer
	anna   string
	sent   int
}

// shownSecrets collects what servers see of a coordinator.
type shownSecrets struct {
	mu  sync.Mutex
	all []string
}

func (s *shownSecrets) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, text)
}

func (s *shownSecrets) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.all, text)
}

// put writes a file with a secret, and returns its path.
func (r *rotation) put(key, secret string) string {
	path := filepath.Join(r.dir, key)
	must.Succeed(r.t, os.WriteFile(path, []byte(secret+"\n"), 0o600))
	return path
}

func (r *rotation) becomes(what string, cond func() bool) {
	r.t.Helper()
	servers.Eventually(r.t, time.Minute, what, cond)
}

// server answers everything, and notes the path and the token of each call.
func (r *rotation) server() *httptest.Server {
	orders := &shop{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.shown.add(request.URL.Path + " " + request.Header.Get("Authorization"))
		orders.ServeHTTP(w, request)
	}))
	r.t.Cleanup(s.Close)
	return s
}

// database listens as PostgreSQL does, and notes who asks to be let in.
func (r *rotation) database() (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(r.t, err)
	r.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			head := make([]byte, 4)
			if _, err := io.ReadFull(conn, head); err == nil {
				startup := make([]byte, binary.BigEndian.Uint32(head)-4)
				_, _ = io.ReadFull(conn, startup)
				for field := range strings.SplitSeq(string(startup), "\x00") {
					r.shown.add("database " + field)
				}
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// send sends a message that ends DEAD, which is an event, after the producer was asked about it.
func (r *rotation) send(producer string) {
	r.t.Helper()
	r.sent++
	_, err := r.producers(r.t).SendHalfMessage(r.t.Context(), &msghandlerv1.SendHalfMessageRequest{
		Producer: producer, CallbackTarget: r.shop.URL + "/" + producer,
		Message: &msghandlerv1.Message{Id: fmt.Sprint(r.sent), Exchange: "no-such-exchange", RoutingKey: "paid"},
	})
	must.Succeed(r.t, err)
}

// shows sends messages until a server was shown a secret.
func (r *rotation) shows(producer, secret string) {
	r.t.Helper()
	r.becomes("a server is shown "+secret, func() bool {
		r.send(producer)
		return r.shown.has(secret)
	})
}

func (r *rotation) redisURL(password string) string {
	return "redis://app:" + password + "@" + r.redis.Addr + "/0"
}

func startRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{t: t, dir: t.TempDir(), redis: servers.Redis(t), issuer: issuer.Start(t), anna: tokenfile.NewSecret()}
	amqp := embeddedtest.Broker(t)
	r.broker, r.other = wire.TCP(t, wire.Host(t, amqp)), wire.TCP(t, wire.Host(t, amqp))
	r.hook, r.shop = r.server(), r.server()
	r.redis.CLI("ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all")
	r.issuer.AddUser("anna", map[string]any{"roles": "reader"})
	file := filepath.Join(r.dir, "config.yaml")
	must.Succeed(t, os.WriteFile(file, fmt.Appendf(nil, `
grpc: {addr: "127.0.0.1:0"}
http: {addr: "127.0.0.1:0", session_key_file: %s, oidc_client_id: console, oidc_client_secret_file: %s}
access: {anonymous: true, token_file: %s, oidc_issuer: %q, oidc_audience: msghandler}
redis: {url_file: %s}
amqp: {url_file: %s}
brokers: {more: {url_file: %s}}
outbox: {plain: {dsn_file: %s, producer: plain}}
events: {webhook_file: %s, webhook_token_file: %s}
callbacks: {allow: ["127.0.0.1:*"], token_file: %s}
producers: {bills: {token_file: %s}}
confirm: {schedule: "@every 50ms", after: 10ms, backoff: [50ms]}
send: {schedule: "@every 50ms", backoff: [10ms]}
`,
		r.put("session-key", strings.Repeat("1", 32)), r.put("client-secret", "first"), r.put("tokens", r.tokenLine(r.anna)),
		r.issuer.URL, r.put("redis-url", r.redisURL("first")), r.put("amqp-url", r.broker.URL(amqp)+"\n"+r.broker.URL(amqp)),
		r.put("broker-url", r.broker.URL(amqp)), r.put("dsn", "postgres://first@"+r.database()+"/d?sslmode=disable"),
		r.put("webhook", r.hook.URL+"/first"), r.put("webhook-token", "first"),
		r.put("callback-token", "first-token-of-callbacks"),
		r.put("bills-token", "first-token-of-callbacks")), 0o600))
	current, err := config.Open(config.Sources{File: file})
	must.Succeed(t, err)
	log := &servers.Log{}
	a, err := app.New(t.Context(), current.Config, app.Deps{
		Logger: slog.New(slog.NewTextHandler(log, nil)), Configuration: current,
	})
	must.Succeed(t, err)
	r.running = &running{App: a, amqp: amqp, log: log, ended: make(chan error, 1)}
	go func() { r.ended <- a.Run(t.Context()) }()
	t.Cleanup(func() {
		_ = a.Stop(t.Context())
		if t.Failed() {
			t.Log(log)
		}
	})
	servers.Eventually(t, time.Minute, "the coordinator is ready", func() bool {
		ok, _ := r.ready()
		return ok
	})
	return r
}

func (r *rotation) tokenLine(token string) string {
	return fmt.Sprintf("anna sha256:%x role=admin", sha256.Sum256([]byte(token)))
}

// rotations change the file of each key, and wait until the coordinator uses the new value.
var rotations = map[string]func(r *rotation){
	"redis.url_file": func(r *rotation) {
		r.redis.CLI("ACL", "SETUSER", "app", "resetpass", ">second")
		r.put("redis-url", r.redisURL("second"))
		r.redis.CLI("CLIENT", "KILL", "USER", "app")
		r.becomes("Redis lets the coordinator in", func() bool {
			return strings.Contains(r.redis.CLI("CLIENT", "LIST"), "user=app")
		})
	},
	"amqp.url_file": func(r *rotation) {
		r.put("amqp-url", r.other.URL(r.amqp)+"\n"+r.other.URL(r.amqp))
		r.moves()
	},
	"brokers.NAME.url_file": func(r *rotation) {
		r.put("broker-url", r.other.URL(r.amqp))
		r.moves()
	},
	"outbox.NAME.dsn_file": func(r *rotation) {
		before, err := config.ReadSecret(filepath.Join(r.dir, "dsn"))
		must.Succeed(r.t, err)
		r.put("dsn", strings.Replace(before, "first", "second", 1))
		r.becomes("the database sees the new user", func() bool { return r.shown.has("database second") })
	},
	"events.webhook_file": func(r *rotation) {
		r.put("webhook", r.hook.URL+"/second")
		r.becomes("events go to the new address", func() bool {
			r.send("orders")
			return r.shown.has("/second Bearer first") || r.shown.has("/second Bearer second")
		})
	},
	"events.webhook_token_file": func(r *rotation) {
		r.put("webhook-token", "second")
		r.becomes("events are shown the new token", func() bool {
			r.send("orders")
			return r.shown.has("/first Bearer second") || r.shown.has("/second Bearer second")
		})
	},
	"callbacks.token_file": func(r *rotation) {
		r.put("callback-token", "second-token-of-callbacks")
		r.shows("orders", "/orders/confirm Bearer second-token-of-callbacks")
	},
	"producers.NAME.token_file": func(r *rotation) {
		r.put("bills-token", "second-token-of-callbacks")
		r.shows("bills", "/bills/confirm Bearer second-token-of-callbacks")
	},
	"access.token_file": func(r *rotation) {
		token := tokenfile.NewSecret()
		r.put("tokens", r.tokenLine(r.anna)+"\nbob"+strings.TrimPrefix(r.tokenLine(token), "anna"))
		r.becomes("the new token holds", func() bool {
			status, _ := r.visit(r.t, http.DefaultClient, "/metrics", nil, "Authorization", "Bearer "+token)
			return status == http.StatusOK
		})
	},
	// Sessions of the key before end, and the person logs in again.
	"http.session_key_file": func(r *rotation) {
		b := browser(r.t)
		isIn := func() bool {
			_, page := r.visit(r.t, b, "/", nil)
			return strings.Contains(page, "token:anna")
		}
		r.visit(r.t, b, "/login", url.Values{"token": {r.anna}})
		if !isIn() {
			r.t.Fatal("no session began")
		}
		r.put("session-key", strings.Repeat("2", 32))
		r.becomes("the session ends", func() bool { return !isIn() })
		if r.visit(r.t, b, "/login", url.Values{"token": {r.anna}}); !isIn() {
			r.t.Error("no session began with the new key")
		}
	},
	"http.oidc_client_secret_file": func(r *rotation) {
		r.issuer.AddClient("console", "second", "http://"+r.HTTPAddr()+"/login/callback")
		r.put("client-secret", "second")
		r.becomes("the issuer takes the new secret", func() bool { return r.logsInByIssuer(browser(r.t)) })
	},
}

// moves cuts the first way to the broker, and waits until the brokers are reached by the other one.
func (r *rotation) moves() {
	r.t.Helper()
	before := r.other.Received()
	r.broker.Disconnect()
	r.becomes("the broker is reached by the other way", func() bool { return r.other.Received() > before })
}

// logsInByIssuer says whether a login by the issuer begins a session.
func (r *rotation) logsInByIssuer(b *http.Client) bool {
	answer, err := b.Get("http://" + r.HTTPAddr() + "/login/oidc")
	must.Succeed(r.t, err)
	answer.Body.Close()
	id := answer.Request.URL.Query().Get("id")
	answer, err = b.PostForm(r.issuer.URL+"/login", url.Values{"id": {id}, "user": {"anna"}})
	must.Succeed(r.t, err)
	answer.Body.Close()
	_, page := r.visit(r.t, b, "/", nil)
	return strings.Contains(page, "jwt:anna")
}

// TestChangedSecretFilesAreUsed rotates what each key of a file names, while one coordinator runs.
func TestChangedSecretFilesAreUsed(t *testing.T) {
	t.Parallel()
	r := startRotation(t)
	all := config.Flags()
	for _, section := range []string{"brokers", "outbox", "producers", "dead_letters"} {
		for _, k := range config.NamedKeys(section) {
			if all = append(all, k); k.Secret {
				all = append(all, k.InFile())
			}
		}
	}
	for _, k := range all {
		if !strings.HasSuffix(k.Name, "_file") {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			r.t = t
			rotate := rotations[k.Name]
			if rotate == nil {
				t.Fatal("no test shows that a changed file is used")
			}
			rotate(r)
		})
	}
	if strings.Contains(r.log.String(), "need_restart=1") {
		t.Error("a change waits for a restart")
	}
}

// A reload may name another file for redis.url. The coordinator then looks at that file.
func TestAnotherFileOfRedisIsWatched(t *testing.T) {
	t.Parallel()
	r := startRotation(t)
	file := filepath.Join(r.dir, "config.yaml")
	content, err := os.ReadFile(file)
	must.Succeed(t, err)
	other := r.put("other-url", r.redisURL("first"))
	r.put("config.yaml", strings.Replace(string(content), filepath.Join(r.dir, "redis-url"), other, 1))
	r.becomes("the other file is in use", func() bool {
		return strings.Contains(r.log.String(), "configuration read again")
	})

	r.put("other-url", "redis://127.0.0.1:1")
	r.becomes("a place without Redis is refused", func() bool {
		return strings.Contains(r.log.String(), "configuration read again and refused") &&
			strings.Contains(r.log.String(), "127.0.0.1:1 cannot be used")
	})
	r.put("other-url", r.redisURL("first")+"?pool_size=3")
	r.becomes("an option waits for a restart", func() bool {
		return strings.Contains(r.log.String(), "a changed key needs a restart") &&
			strings.Contains(r.found(t)["config-restart"], "redis.url_file")
	})
	r.redis.CLI("ACL", "SETUSER", "app", "resetpass", ">second")
	r.put("other-url", r.redisURL("second"))
	r.redis.CLI("CLIENT", "KILL", "USER", "app")
	r.becomes("Redis lets the coordinator in", func() bool {
		return strings.Contains(r.redis.CLI("CLIENT", "LIST"), "user=app")
	})
}

// The secret before an unusable one stays in use, and the log says so.
func TestUnusableSecretIsNotUsed(t *testing.T) {
	t.Parallel()
	r := startRotation(t)
	for file, text := range map[string]string{
		"session-key": "short", "client-secret": "", "webhook": "no URL", "broker-url": "nats://127.0.0.1:1",
	} {
		r.put(file, text)
	}
	b := browser(t)
	r.visit(t, b, "/login", url.Values{"token": {r.anna}})
	names := func(keys ...string) bool {
		return !slices.ContainsFunc(keys, func(key string) bool { return !strings.Contains(r.log.String(), "key="+key) })
	}
	r.becomes("the log names the files of console and webhook", func() bool {
		r.send("orders")
		r.logsInByIssuer(browser(t))
		return names("http.session_key_file", "http.oidc_client_secret_file", "events.webhook_file")
	})
	r.broker.Disconnect()
	r.becomes("the log names the file of the broker", func() bool { return names("brokers.more.url_file") })
	if _, page := r.visit(t, b, "/", nil); !strings.Contains(page, "token:anna") {
		t.Error("the session has ended")
	}
}
