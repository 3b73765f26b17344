package cause_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// redisError is an answer of Redis, as the driver returns it.
type redisError string

func (a redisError) Error() string { return string(a) }
func (redisError) RedisError()     {}

// store is an error of the store, as callers get it.
func store(err error) error { return fmt.Errorf("%w: %w", halfmsg.ErrUnavailable, err) }

// broker is why a publisher has no connection.
func broker(errs ...error) error {
	return fmt.Errorf("%w: connect: %w", publish.ErrDisconnected, errors.Join(errs...))
}

var refused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

func TestErrorsOfPartsHaveTheirCauses(t *testing.T) {
	t.Parallel()
	rabbitMQ := cause.Part{System: "rabbitmq", Key: "amqp.url"}
	kafka := cause.Part{System: "kafka", Name: "logs", Key: "brokers.logs.url"}
	shop := cause.Part{System: "sql", Name: "shop", Key: "outbox.shop.dsn"}
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	expired := &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{
		Reason: x509.Expired, Detail: "current time 2026-11-29T12:00:00Z is after 2026-11-28T10:00:00Z",
	}}
	for _, c := range []struct {
		part         cause.Part
		err          error
		name, remedy string
	}{
		{cause.Redis, store(refused), "redis-away", "start Redis"},
		{cause.Redis, store(redisError("WRONGPASS invalid username-password pair")), "redis-login", "redis.url"},
		{cause.Redis, store(redisError("NOAUTH Authentication required.")), "redis-login", "restart"},
		{cause.Redis, store(redisError("NOPERM this user has no permissions")), "redis-permission", "ACL SETUSER"},
		{cause.Redis, store(redisError("READONLY You can't write against a read only replica.")), "redis-replica", "master"},
		{cause.Redis, fmt.Errorf("%w: %w", halfmsg.ErrFull, redisError("OOM")), "redis-full", "maxmemory"},
		{cause.Redis, store(redisError("MISCONF Redis is configured to save RDB snapshots")), "redis-disk", "disk"},
		{cause.Redis, store(redisError("LOADING Redis is loading the dataset")), "redis-loading", "wait"},
		{cause.Redis, store(redisError("NOREPLICAS Not enough good replicas")), "redis-no-replicas", "replicas"},
		{cause.Redis, store(redisError("CLUSTERDOWN The cluster is down")), "redis-master-away", "cluster nodes"},
		{cause.Redis, store(redisError("ERR something else")), "redis-refuses", "log"},
		{cause.Redis, store(untrusted), "redis-tls", "certificate"},
		{cause.Redis, store(expired), "certificate-expired", "the server that redis.url names"},
		{rabbitMQ, broker(expired), "certificate-expired", "the server that amqp.url names"},
		{kafka, broker(expired), "certificate-expired", "brokers.logs.url"},
		{shop, errors.New("tls error: " + expired.Error()), "certificate-expired", "outbox.shop.dsn"},
		{kafka, broker(errors.New("remote error: tls: expired certificate")), "certificate-expired", "client certificate"},
		{cause.Redis, store(context.DeadlineExceeded), "redis-mute", "SLOWLOG"},
		{cause.Redis, store(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), "redis-mute", "the host of Redis"},
		{cause.Redis, store(&net.DNSError{IsTimeout: true}), "redis-away", "redis.url"},
		{cause.Redis, store(redisError("BUSY Redis is busy running a script.")), "redis-mute", "SCRIPT KILL"},
		{cause.Redis, store(redisError("MASTERDOWN Link with MASTER is down")), "redis-replica", "present master"},
		{cause.Redis, store(redisError("ERR ACL failure in script: no permissions")), "redis-permission", "ACL SETUSER"},
		{cause.Redis, store(fmt.Errorf("all sentinels: %w", redisError("redis: nil"))), "redis-away", "redis.url"},
		{cause.Part{}, store(redisError("MISCONF")), "redis-disk", "disk"},
		{cause.Part{}, errors.New("panic"), "coordinator-degraded", "the error names"},
		{rabbitMQ, cause.ErrNotOpen, "coordinator-not-serving", "wait"},
		{rabbitMQ, publish.ErrDisconnected, "rabbitmq-away", "amqp.url"},
		{rabbitMQ, broker(refused), "rabbitmq-away", "start RabbitMQ"},
		{rabbitMQ, broker(publish.ErrAccessRefused, errors.New("403 ACCESS_REFUSED")), "rabbitmq-login", "amqp.url"},
		{rabbitMQ, broker(publish.ErrAccessRefused, errors.New("530 NOT_ALLOWED")), "rabbitmq-vhost", "virtual host"},
		{
			rabbitMQ, broker(publish.ErrAccessRefused, errors.New("NOT_ALLOWED - ...: connection limit (1) is reached")),
			"rabbitmq-vhost", "raise the limit",
		},
		{rabbitMQ, broker(errors.New("INTERNAL_ERROR - ...: vhost '/' is down")), "rabbitmq-refuses", "log"},
		{rabbitMQ, broker(publish.ErrHandshake), "rabbitmq-handshake", "load"},
		{rabbitMQ, broker(untrusted), "rabbitmq-tls", "amqps://"},
		{rabbitMQ, fmt.Errorf("%w: low on memory", publish.ErrBlocked), "rabbitmq-alarm", "memory or disk"},
		{kafka, broker(refused), "broker-away", "brokers.logs.url"},
		{kafka, broker(publish.ErrAccessRefused), "broker-login", "brokers.logs.url"},
		{kafka, broker(publish.ErrHandshake, io.EOF), "broker-handshake", "sasl"},
		{kafka, broker(untrusted), "broker-tls", "certificate"},
		{kafka, broker(errors.New("nats: secure connection not available")), "broker-tls", "listener"},
		{kafka, fmt.Errorf("%w: no room", publish.ErrBlocked), "broker-blocked", "replicas"},
		{shop, refused, "outbox-away", "outbox.shop.dsn"},
		{shop, errors.New("FATAL: password authentication failed (SQLSTATE 28P01)"), "outbox-login", "outbox.shop.dsn"},
		{shop, errors.New("Error 1045 (28000): Access denied for user"), "outbox-login", "password"},
		{shop, errors.New(`relation "t" does not exist (SQLSTATE 42P01)`), "outbox-table", "--database shop"},
		{shop, errors.New("Error 1146 (42S02): Table 'd.t' doesn't exist"), "outbox-table", "--database shop"},
		{shop, errors.New("permission denied for table t (SQLSTATE 42501)"), "outbox-rights", "outbox.shop"},
		{shop, errors.New("Error 1290 (HY000): read-only"), "outbox-readonly", "primary"},
		{shop, errors.New("Error 1205 (HY000): Lock wait timeout exceeded"), "outbox-locked", "PROCESSLIST"},
		{shop, fmt.Errorf("claim: %w", context.DeadlineExceeded), "outbox-locked", "pg_stat_activity"},
		{shop, untrusted, "outbox-tls", "certificate"},
		{shop, errors.New("tls error: server refused TLS connection"), "outbox-tls", "outbox.shop.dsn"},
		{shop, errors.New("FATAL: too many clients already (SQLSTATE 53300)"), "outbox-refuses", "log"},
		{shop, errors.New("FATAL: the database system is starting up (SQLSTATE 57P03)"), "outbox-away", "start"},
	} {
		got := cause.Of(c.part, c.err)
		if got.Name != c.name || !strings.Contains(got.Remedy, c.remedy) || strings.ContainsAny(got.Remedy, "{}") {
			t.Errorf("%v: got %+v", c.err, got)
		}
	}
}

func TestExpiredCertificatesHaveTheirDate(t *testing.T) {
	t.Parallel()
	got := cause.OfCall("Confirm of producer orders at dns:///orders:9000: Unavailable: connection error: desc = " +
		`"transport: authentication handshake failed: tls: failed to verify certificate: x509: certificate has expired or ` +
		`is not yet valid: current time 2026-11-29T13:00:00+01:00 is after 2026-11-28T10:00:00Z"`)
	if got.Name != "certificate-expired" ||
		!strings.HasPrefix(got.Why, "the certificate expired on 2026-11-28 10:00 UTC: ") ||
		!strings.Contains(got.Remedy, "give the producer a new certificate") {
		t.Errorf("got %+v", got)
	}
}

func TestRefusalsHaveTheirCauses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ failure, exchange, key, name, remedy string }{
		{"returned by the broker: 312 NO_ROUTE", "shop", "paid", "refused-no-route", "for the routing key paid"},
		{`Exception (404) Reason: "NOT_FOUND - no exchange"`, "shop", "", "refused-no-exchange", "declare the exchange shop"},
		{`Exception (403) Reason: "ACCESS_REFUSED"`, "shop", "", "refused-permission", "write to shop"},
		{"TOPIC_AUTHORIZATION_FAILED: Not authorized", "paid", "", "refused-permission", "write to paid"},
		{"nack by the broker", "", "paid", "refused-queue-full", "consumers of queue paid"},
		{"nack by the broker", "shop", "paid", "refused-queue-full", "consumers of the queues of the exchange shop"},
		{publish.ErrStalled.Error(), "shop", "", "queue-stalled", "missing nodes of the queues of the exchange shop"},
		{"UNKNOWN_TOPIC_OR_PARTITION: no topic", "paid", "", "refused-no-topic", "create the topic paid"},
		{`no stream "paid", and no other`, "paid", "a", "refused-no-stream", "add the stream paid"},
		{"refused by the stream: maximum messages exceeded (code 10077)", "paid", "", "refused-stream-full", "max_msgs"},
		{"the message is too large", "", "", "messages-refused", "exchange (default)"},
		{publish.ErrDisconnected.Error(), "shop", "", "messages-stuck", "msghandler doctor"},
		{publish.ErrDisconnected.Error() + ": ACCESS_REFUSED - Login was refused", "shop", "", "messages-stuck", "broker"},
		{publish.ErrBlocked.Error() + ": low on memory", "shop", "", "messages-stuck", "broker"},
	} {
		got := cause.OfRefusal(c.failure, c.exchange, c.key)
		if got.Name != c.name || !strings.Contains(got.Remedy, c.remedy) || strings.ContainsAny(got.Remedy, "{}") {
			t.Errorf("%s: got %+v", c.failure, got)
		}
	}
}

func TestCallsHaveTheirCauses(t *testing.T) {
	t.Parallel()
	of := func(target, rest string) string { return "Confirm of producer orders at " + target + ": " + rest }
	const byGRPC, byHTTP = "dns:///orders:9000", "http://orders:8080"
	for _, c := range []struct {
		want    cause.Cause
		failure string
	}{
		{cause.ProducerAway, of(byGRPC, `Unavailable: connection error: desc = "transport: Error while dialing: refused"`)},
		{cause.ProducerAway, of(byHTTP, "Unavailable: dial 10.0.0.1:80: connection refused")},
		{cause.ProducerGateway, of(byHTTP, "Unavailable: HTTP status 503 Service Unavailable")},
		{cause.ProducerUnable, of(byHTTP, "Unavailable: HTTP status 503 Service Unavailable: dial tcp db: refused")},
		{cause.ProducerUnable, of(byHTTP, "Unavailable: HTTP status 503 Service Unavailable: read tcp 1.2.3.4:5: timeout")},
		{cause.ProducerUnable, of(byGRPC, "Unavailable: database is locked")},
		{cause.ProducerUnresolved, of(byGRPC, "Unavailable: the name does not resolve here, or has no address")},
		{cause.ProducerUnattended, of("attend:///orders", "Unavailable: no one attends as producer orders")},
		{cause.ProducerMute, of(byGRPC, "DeadlineExceeded: no answer within 3s")},
		{cause.ProducerSwallowed, of(byGRPC, "DeadlineExceeded: (waiting for connections to become ready)")},
		{cause.ProducerFails, of(byGRPC, "Internal: Lock wait timeout exceeded")},
		{cause.ProducerRefuses, of(byGRPC, "Unauthenticated: show a token")},
		{cause.ProducerNoService, of(byGRPC, "Unimplemented: unknown service")},
		{cause.ProducerNoURL, of(byHTTP, "Unimplemented: HTTP status 404 Not Found")},
		{cause.ProducerNeedsTLS, of(byHTTP, "Unavailable: HTTP status 400: HTTP request to an HTTPS server")},
		{cause.ProducerNoVerdict, of(byHTTP, "Internal: the answer is not in the contract's form: the body is empty")},
		{cause.ProducerCertificate, of(byGRPC, `Unavailable: "transport: authentication handshake failed: x509"`)},
		{cause.ProducerAnother, of(byGRPC, "FailedPrecondition: this is the producer stock")},
		{cause.ProducerOutside, of(byGRPC, "Unavailable: 10.0.0.1 lies outside callbacks.networks")},
	} {
		if got := cause.OfCall(c.failure); got != c.want {
			t.Errorf("%s: got %+v", c.failure, got)
		}
	}
}

// What an error explains by itself needs no table.
func TestExplainedErrorsKeepTheirCause(t *testing.T) {
	t.Parallel()
	if got := cause.Of(cause.Redis, fmt.Errorf("check: %w", explainedError{})); got.Name != "redis-evicts" {
		t.Errorf("got %+v", got)
	}
}

type explainedError struct{}

func (explainedError) Error() string      { return "maxmemory-policy allkeys-lru" }
func (explainedError) Cause() cause.Cause { return cause.Cause{Name: "redis-evicts"} }

func TestEachCauseHasAnEntry(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cause.All() {
		if !regexp.MustCompile(`(?m)^### ` + c.Name + `$`).Match(page) {
			t.Errorf("docs/reference/findings.md does not explain %s", c.Name)
		}
		if c.Why == "" || c.Remedy == "" || strings.HasSuffix(c.Remedy, ".") {
			t.Errorf("no consequence or no action: %+v", c)
		}
	}
}
