package redis_test

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// TestRefusedLoginStoresNothing takes the login of a running coordinator away, which ends its connections. The error
// says that nothing was stored, and reads are no empty answers.
func TestRefusedLoginStoresNothing(t *testing.T) {
	t.Parallel()
	for _, user := range []string{"default", "orders"} {
		for name, change := range map[string][]any{
			"password": {"ACL", "SETUSER", user, "resetpass", ">another"},
			"off":      {"ACL", "SETUSER", user, "off"},
			"command":  {"ACL", "SETUSER", user, "-evalsha", "-smembers"},
			"keys":     {"ACL", "SETUSER", user, "resetkeys"},
		} {
			t.Run(user+"/"+name, func(t *testing.T) {
				t.Parallel()
				testRefusedLogin(t, user, change)
			})
		}
	}
}

func testRefusedLogin(t *testing.T, user string, change []any) {
	server := servers.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "admin", Password: "a"})
	t.Cleanup(func() { _ = admin.Close() })
	server.CLI("ACL", "SETUSER", "admin", "on", ">a", "~*", "&*", "+@all")
	server.CLI("ACL", "SETUSER", user, "on", "resetpass", ">secret", "~*", "&*", "+@all")
	store := open(t, redisstore.Config{URL: "redis://" + user + ":secret@" + server.Addr})
	create(t, store, half("before"))
	for _, command := range [][]any{change, {"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"}} {
		must.Succeed(t, admin.Do(t.Context(), command...).Err())
	}
	for range 2 {
		r := store.Create(t.Context(), []halfmsg.Message{half("after")})[0]
		if !errors.Is(r.Err, halfmsg.ErrUnavailable) {
			t.Errorf("create: %v", r.Err)
		}
		if producers, err := store.PendingProducers(t.Context()); !errors.Is(err, halfmsg.ErrUnavailable) {
			t.Errorf("the producers with pending messages: %q, %v", producers, err)
		}
	}
}

// TestRestedTLSConnectionsAreReplaced lets Redis close the connections of a store that rests.
func TestRestedTLSConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	_, client, _ := fresh(t, redisstore.Config{})
	certFile, keyFile := certstest.NewAuthority(t).Issue("127.0.0.1")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_ = listener.Close()
	must.Succeed(t, client.Do(t.Context(), "CONFIG", "SET", "tls-cert-file", certFile, "tls-key-file", keyFile,
		"tls-auth-clients", "no", "tls-port", port).Err())
	var met atomic.Int64
	store := open(t, redisstore.Config{
		URL: "rediss://127.0.0.1:" + port + "?skip_verify=true&client_name=resting",
		Handshake: func(server string, state tls.ConnectionState, err error) {
			if err == nil && server == "127.0.0.1:"+port && len(state.PeerCertificates) == 1 {
				met.Add(1)
			}
		},
	})
	create(t, store, half("1"))
	must.Succeed(t, client.ConfigSet(t.Context(), "timeout", "1").Err())
	servers.Eventually(t, time.Minute, "Redis to close the resting connections", func() bool {
		clients, err := client.ClientList(t.Context()).Result()
		return err == nil && !strings.Contains(clients, "name=resting")
	})
	before := met.Load()
	create(t, store, half("2"))
	if before == 0 || met.Load() == before {
		t.Errorf("%d handshakes were reported, and %d before", met.Load(), before)
	}
}
