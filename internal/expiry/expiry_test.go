package expiry_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
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

// What renews certificates of a short life does so when a third of it is left: before that nothing is late.
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
	servers := b.Servers("redis.url")
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

// A server that nobody meets any more may be gone, and others come.
func TestEndedServersAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b expiry.Book
		servers := b.Servers("producers")
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
