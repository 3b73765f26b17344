package expiry_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/expiry"
)

const day = 24 * time.Hour

// of is a certificate of the key k that was issued for a year.
func of(holder string, ends time.Time) expiry.Certificate {
	return expiry.Certificate{Key: "k", Holder: holder, Begins: ends.Add(-365 * day), Ends: ends}
}

func TestEachMarkIsLoggedOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ends := now.Add(40 * day)
	var b expiry.Book
	b.Add(func(time.Time) []expiry.Certificate { return []expiry.Certificate{of("file", ends)} })
	var told []int
	for at := 40; at >= -40; at-- {
		var log bytes.Buffer
		for range 2 {
			b.Log(slog.New(slog.NewTextHandler(&log, nil)), ends.Add(-time.Duration(at)*day))
		}
		text := log.String()
		if text == "" {
			continue
		}
		told = append(told, at)
		level := "level=WARN"
		if at <= 0 {
			level = "level=ERROR"
		}
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, level) || !strings.Contains(text, "certificate=file") {
			t.Errorf("%d days before the end the log has\n%s", at, text)
		}
	}
	if fmt.Sprint(told) != "[30 7 1 0 -1 -7 -30]" {
		t.Errorf("told %d days before the end", told)
	}
}

// Replicas behind one name may show an old certificate and a new one in turn.
func TestAlternatingCertificatesAreLoggedOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var b expiry.Book
	turn := 0
	b.Add(func(time.Time) []expiry.Certificate {
		turn++
		return []expiry.Certificate{of("orders:9000", now.Add(time.Duration(turn%2+2)*day))}
	})
	var log bytes.Buffer
	for look := range 20 {
		b.Log(slog.New(slog.NewTextHandler(&log, nil)), now.Add(time.Duration(look)*time.Second))
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("two certificates are in %d lines:\n%s", n, &log)
	}
}

// Each node of a broker's URL names the file of authorities.
func TestSharedFileIsReportedOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var b expiry.Book
	for range 3 {
		b.Add(func(time.Time) []expiry.Certificate { return []expiry.Certificate{of("ca.pem", now.Add(-time.Hour))} })
	}
	var log bytes.Buffer
	b.Log(slog.New(slog.NewTextHandler(&log, nil)), now)
	over, _ := expiry.Due(b.All(now), now)
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(over, "ca.pem (k) expired") {
		t.Errorf("%d lines, and %q", n, over)
	}
}

// The connection may be older than the present certificate of its server.
func TestTextsNameDayOfOldHandshake(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	old, fresh := of("a:5671", now.Add(5*day)), of("b:5671", now.Add(6*day))
	old.Shown, fresh.Shown = now.Add(-60*day), now.Add(-time.Hour)
	if _, soon := expiry.Due([]expiry.Certificate{old, fresh}, now); soon != "certificates end soon: "+
		"a:5671 (k) ends on 2026-12-04 12:00 UTC, in 5 days, as shown on 2026-09-30; "+
		"b:5671 (k) ends on 2026-12-05 12:00 UTC, in 6 days" {
		t.Errorf("got %q", soon)
	}
}

// issued is a certificate with its key.
type issued struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue makes a certificate that an authority signs, or its own key where by is nil. The key is that of same, or a new
// key where same is nil.
func issue(t *testing.T, name string, left time.Duration, by, same *issued) *issued {
	t.Helper()
	made := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-100 * day), NotAfter: time.Now().Add(left), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if same != nil {
		key = same.key
	}
	if by == nil {
		by = &issued{made, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, made, by.Certificate, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &issued{c, key}
}

// A root was once signed across by an older root, which has ended. Clients that trust the root need no older root.
func TestEndedCrossSignatureIsLeftOut(t *testing.T) {
	t.Parallel()
	older, root := issue(t, "older", -day, nil, nil), issue(t, "root", 900*day, nil, nil)
	across, between := issue(t, "root", -day, older, root), issue(t, "between", 400*day, root, nil)
	leaf := issue(t, "leaf", 60*day, between, nil)
	trusting := x509.NewCertPool()
	trusting.AddCert(root.Certificate)
	for _, c := range []struct {
		roots *x509.CertPool
		want  *issued
	}{{trusting, leaf}, {x509.NewCertPool(), across}} {
		chain := []*x509.Certificate{leaf.Certificate, between.Certificate, across.Certificate}
		got := expiry.OfChain("k", "tls.crt", chain, c.roots)
		if len(got) != 1 || !got[0].Ends.Equal(c.want.NotAfter) {
			t.Errorf("got %+v, want the end of %s", got, c.want.Subject)
		}
	}
}

// Certificates of a short life are renewed when a third of the life is left: before that time no renewal is late.
func TestShortLivesEndSoonLater(t *testing.T) {
	t.Parallel()
	ends := time.Now()
	short := expiry.Certificate{Begins: ends.Add(-day), Ends: ends}
	if short.EndsSoon(ends.Add(-9*time.Hour)) || !short.EndsSoon(ends.Add(-7*time.Hour)) {
		t.Error("a certificate for a day ends soon at another time than in its last third")
	}
	long := of("file", ends)
	if long.EndsSoon(ends.Add(-31*day)) || !long.EndsSoon(ends.Add(-29*day)) {
		t.Error("a certificate for a year ends soon at another time than in its last 30 days")
	}
}

func TestTextsNameEachHolderOnce(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	shared := of("tls.crt", now.Add(5*day))
	again := shared
	again.Key = "l"
	refused := of("redis:6379", now.Add(-day))
	refused.Refused = true
	over, soon := expiry.Due([]expiry.Certificate{of("ca.pem", now.Add(-day)), refused, shared, again}, now)
	if over != "expired certificates: ca.pem (k) expired on 2026-11-28 12:00 UTC" ||
		soon != "certificates end soon: tls.crt (k, l) ends on 2026-12-04 12:00 UTC, in 5 days" {
		t.Errorf("got %q, %q", over, soon)
	}
	var many []expiry.Certificate
	for n := range 6 {
		many = append(many, of(fmt.Sprint(n), now.Add(time.Hour)))
	}
	if _, soon = expiry.Due(many, now); !strings.HasSuffix(soon, "in 1 h; 2 more") {
		t.Errorf("got %q", soon)
	}
}

// A chain is good until its first end, and several chains until the last of these.
func TestVerifiedChainsEndTogether(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cert := func(days int) *x509.Certificate {
		return &x509.Certificate{NotBefore: now.Add(-100 * day), NotAfter: now.Add(time.Duration(days) * day)}
	}
	leaf, old, young := cert(50), cert(10), cert(20)
	var b expiry.Book
	servers := b.Servers("redis.url", nil)
	chains := [][]*x509.Certificate{{leaf, old}, {leaf, young}}
	servers.Handshake("r:6379", tls.ConnectionState{VerifiedChains: chains}, nil)
	servers.Handshake("unverified:6379", tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert(-1)}}, nil)
	servers.Handshake("away:6379", tls.ConnectionState{}, tls.AlertError(40))
	if all := b.All(now); len(all) != 1 || !all[0].Ends.Equal(young.NotAfter) || all[0].Holder != "r:6379" {
		t.Errorf("got %+v", all)
	}
	servers.Handshake("r:6379", tls.ConnectionState{}, fmt.Errorf("dial: %w", &tls.CertificateVerificationError{
		Err: x509.CertificateInvalidError{Cert: cert(-1), Reason: x509.Expired},
	}))
	if all := b.All(now); len(all) != 1 || !all[0].IsOver(now) || !all[0].Refused {
		t.Errorf("after a refused handshake: %+v", all)
	}
	if first := b.Soonest(now)["redis.url"]; first.Holder != "r:6379" {
		t.Errorf("the first of the key is %+v", first)
	}
}

// The authority that was replaced stays in the file for a while, and is no trouble.
func TestReplacedAuthorityIsLeftOut(t *testing.T) {
	t.Parallel()
	now := time.Now()
	over, good := &x509.Certificate{NotAfter: now.Add(-day)}, &x509.Certificate{NotAfter: now.Add(day)}
	for _, c := range []struct {
		all  []*x509.Certificate
		want *x509.Certificate
	}{{[]*x509.Certificate{over, good}, good}, {[]*x509.Certificate{over}, over}} {
		if got := expiry.OfAuthorities("k", "ca.pem", c.all, now); !got[0].Ends.Equal(c.want.NotAfter) {
			t.Errorf("got %+v", got)
		}
	}
}

// A server without a handshake for long may be gone, and others come.
func TestEndedServersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b expiry.Book
		servers := b.Servers("producers", nil)
		chain := []*x509.Certificate{{NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}}
		for n := range 600 {
			servers.Handshake(fmt.Sprint(n), tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{chain}}, nil)
			time.Sleep(time.Millisecond)
		}
		if n := len(b.All(time.Now())); n != 512 {
			t.Errorf("%d servers are known", n)
		}
		time.Sleep(20 * time.Hour)
		if n := len(b.All(time.Now())); n != 512 {
			t.Errorf("%d servers are known within a day after the end", n)
		}
		time.Sleep(6 * time.Hour)
		if n := len(b.All(time.Now())); n != 0 {
			t.Errorf("%d servers are known a day after the end", n)
		}
	})
}

func TestLeftServerIsNotReported(t *testing.T) {
	t.Parallel()
	var b expiry.Book
	chain := []*x509.Certificate{{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}}
	for _, key := range []string{"redis.url", "amqp.url"} {
		servers := b.Servers(key, nil)
		for _, server := range []string{"old:6379", "new:6379"} {
			servers.Handshake(server, tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{chain}}, nil)
		}
	}
	b.Forget("redis.url", "old:6379")
	var left []string
	for _, c := range b.All(time.Now()) {
		left = append(left, c.Key+" "+c.Holder)
	}
	slices.Sort(left)
	if want := []string{"amqp.url new:6379", "amqp.url old:6379", "redis.url new:6379"}; !slices.Equal(left, want) {
		t.Errorf("reported are %q", left)
	}
}
