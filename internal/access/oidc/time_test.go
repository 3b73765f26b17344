package oidc_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/test/issuer"
)

// direct hands a request to the issuer without a network, which would stop the clock of a bubble.
type direct struct{ to http.Handler }

func (d direct) RoundTrip(request *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	d.to.ServeHTTP(answer, request)
	return answer.Result(), nil
}

// inBubble runs a test in a bubble, with an issuer and a log.
func inBubble(t *testing.T, failing bool, test func(*testing.T, *issuer.Issuer, *oidc.Source, *lines)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		of := issuer.New(t, "https://id.example.com")
		of.Fail(failing)
		log := newLog()
		source := oidc.NewWithTransport(t.Context(), config(of), direct{of}, slog.New(slog.NewTextHandler(log, nil)))
		defer source.Close()
		test(t, of, source, log)
	})
}

func accepts(t *testing.T, source *oidc.Source, token string) bool {
	t.Helper()
	_, err := source.Authenticate(t.Context(), token)
	return err == nil
}

func TestJWTIsValidBetweenItsTimes(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, _ *lines) {
		for _, name := range []string{"nbf", "iat"} {
			begin := time.Now().Add(time.Hour)
			token := of.JWT(name, audience, map[string]any{name: begin.Unix(), "exp": begin.Add(time.Hour).Unix()})
			time.Sleep(time.Until(begin) - oidc.Skew - time.Second)
			if _, err := source.Authenticate(t.Context(), token); err == nil ||
				!strings.Contains(err.Error(), "not valid yet ("+name+")") {
				t.Errorf("%s: before its time: %v", name, err)
			}
			time.Sleep(time.Second)
			if !accepts(t, source, token) {
				t.Errorf("%s: refused at its time", name)
			}
		}
	})
}

// A JWT that is cached ends at its time too.
func TestCachedJWTEndsAtItsTime(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, _ *lines) {
		end := time.Now().Add(10 * time.Second)
		token := of.JWT("anna", audience, map[string]any{"exp": end.Unix()})
		time.Sleep(time.Until(end) + oidc.Skew - time.Second)
		got, err := source.Authenticate(t.Context(), token)
		if err != nil || !got.Expires.Equal(end.Add(oidc.Skew)) {
			t.Errorf("before its end: %v, until %v", err, got.Expires)
		}
		time.Sleep(time.Second)
		if _, err := source.Authenticate(t.Context(), token); err == nil ||
			!strings.Contains(err.Error(), "the JWT expired at 2000-01-01T00:00:10Z") {
			t.Errorf("after its end: %v", err)
		}
	})
}

func TestWithdrawnKeyIsRefusedWithinMinute(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, _ *lines) {
		old := of.JWT("anna", audience, nil)
		if !accepts(t, source, old) {
			t.Fatal("refused")
		}
		of.AddKey()
		time.Sleep(time.Hour / 2)
		if !accepts(t, source, old) {
			t.Error("a new key beside the old key makes its JWT refused")
		}
		of.WithdrawKey("key-1")
		withdrawn := time.Now()
		for accepts(t, source, old) {
			time.Sleep(time.Second / 2)
			if time.Since(withdrawn) > time.Minute {
				t.Fatal("a withdrawn key is in use after a minute")
			}
		}
		if !accepts(t, source, of.JWT("anna", audience, nil)) {
			t.Error("the new key is refused")
		}
		of.WithdrawKey("key-2")
		time.Sleep(time.Minute)
		if accepts(t, source, of.JWT("anna", audience, nil)) {
			t.Error("a key is in use after the issuer has withdrawn all")
		}
	})
}

func TestNewKeyIsKnownAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, _ *lines) {
		if !accepts(t, source, of.JWT("anna", audience, nil)) {
			t.Fatal("refused")
		}
		time.Sleep(oidc.FetchAgainAfter)
		of.AddKey()
		token, began := of.JWT("anna", audience, nil), time.Now()
		if !accepts(t, source, token) || !time.Now().Equal(began) {
			t.Errorf("a JWT of the new key was refused, or waited %s", time.Since(began))
		}
	})
}

// A stranger shows JWTs with ever new keys. The issuer gets few requests, and others wait for nothing.
func TestUnknownKeysDoNotFloodIssuer(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, _ *lines) {
		good := of.JWT("anna", audience, nil)
		if !accepts(t, source, good) {
			t.Fatal("refused")
		}
		before := of.Requests(issuer.KeysPath)
		claims := of.Claims("anna", audience, nil)
		const minutes = 2
		for second := range minutes * 60 {
			for range 5 {
				token := issuer.SignWith(strangersKey(t, rid(second)), claims, nil)
				if _, err := source.Authenticate(t.Context(), token); err == nil ||
					!strings.Contains(err.Error(), "with a key that the issuer does not publish") {
					t.Fatalf("got %v", err)
				}
			}
			if !accepts(t, source, good) {
				t.Fatal("a good JWT is refused meanwhile")
			}
			time.Sleep(time.Second)
		}
		most := minutes*int(time.Minute/oidc.FetchAgainAfter) + 1
		if n := of.Requests(issuer.KeysPath) - before; n > most {
			t.Errorf("%d requests for keys in %d minutes, want at most %d", n, minutes, most)
		}
		if n := of.Requests(issuer.DiscoveryPath); n != 1 {
			t.Errorf("%d requests for addresses", n)
		}
	})
}

func rid(n int) string { return "stranger-" + time.Duration(n).String() }

// Bad signatures under a known key cause no fetch at all.
func TestBadSignaturesDoNotReachIssuer(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, _ *lines) {
		if !accepts(t, source, of.JWT("anna", audience, nil)) {
			t.Fatal("refused")
		}
		time.Sleep(oidc.FetchAgainAfter)
		before := of.Requests(issuer.KeysPath)
		for range 50 {
			if accepts(t, source, issuer.SignWith(strangersKey(t, "key-1"), of.Claims("anna", audience, nil), nil)) {
				t.Fatal("accepted")
			}
		}
		if n := of.Requests(issuer.KeysPath) - before; n > 0 {
			t.Errorf("%d requests for keys", n)
		}
	})
}

func TestIssuerMayBeAwayAtFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, true, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, log *lines) {
		token := of.JWT("anna", audience, nil)
		for range 120 {
			_, err := source.Authenticate(t.Context(), token)
			if !errors.Is(err, access.ErrUnavailable) || strings.Contains(err.Error(), "out of order") {
				t.Fatalf("got %v", err)
			}
			if _, err := source.Endpoint(); !errors.Is(err, access.ErrUnavailable) {
				t.Fatalf("got %v", err)
			}
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "JWTs are refused until it answers"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log)
		}
		of.Fail(false)
		time.Sleep(oidc.FetchEvery)
		if !accepts(t, source, token) {
			t.Error("refused after the issuer has answered")
		}
		if !strings.Contains(log.String(), "OIDC issuer answers again") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

func TestKeysOutliveTheIssuer(t *testing.T) {
	t.Parallel()
	inBubble(t, false, func(t *testing.T, of *issuer.Issuer, source *oidc.Source, log *lines) {
		token := of.JWT("anna", audience, map[string]any{"exp": time.Now().Add(48 * time.Hour).Unix()})
		if !accepts(t, source, token) {
			t.Fatal("refused")
		}
		of.Fail(true)
		time.Sleep(24 * time.Hour)
		if !accepts(t, source, token) {
			t.Error("the keys have ended with the issuer")
		}
		of.AddKey()
		if _, err := source.Authenticate(t.Context(), of.JWT("b", audience, nil)); !errors.Is(err, access.ErrUnavailable) {
			t.Errorf("a key that cannot be fetched: %v", err)
		}
		if n := strings.Count(log.String(), "the keys fetched before stay valid"); n == 0 || n > 2 {
			t.Errorf("%d lines:\n%s", n, log)
		}
		of.Fail(false)
		time.Sleep(oidc.FetchEvery)
		if !accepts(t, source, of.JWT("b", audience, nil)) {
			t.Error("the new key is unknown after the issuer has come back")
		}
	})
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// A call waits for a silent issuer for a few seconds, and ends with its context.
func TestSilentIssuerHoldsUpCallsBriefly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := issuer.New(t, "https://id.example.com")
		source := oidc.NewWithTransport(t.Context(), config(of), silent{}, slog.New(slog.DiscardHandler))
		defer source.Close()
		for _, limit := range []time.Duration{time.Hour, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began := time.Now()
			_, err := source.Authenticate(ctx, of.JWT("anna", audience, nil))
			if took := time.Since(began); !errors.Is(err, access.ErrUnavailable) || took > min(limit, 3*time.Second) {
				t.Errorf("after %s: %v", took, err)
			}
			cancel()
		}
	})
}

// Strangers can make only so many calls wait for a silent issuer: a waiting call holds memory.
func TestCallsAwaitingIssuerAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := issuer.New(t, "https://id.example.com")
		source := oidc.NewWithTransport(t.Context(), config(of), silent{}, slog.New(slog.DiscardHandler))
		defer source.Close()
		token := of.JWT("anna", audience, nil)
		begin := time.Now()
		waits := make(chan time.Duration, oidc.MaxWaiting+10)
		for range cap(waits) {
			go func() {
				if _, err := source.Authenticate(t.Context(), token); !errors.Is(err, access.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				waits <- time.Since(begin)
			}()
		}
		refused := 0
		for range cap(waits) {
			if <-waits < oidc.FetchWait {
				refused++
			}
		}
		if refused != 10 {
			t.Errorf("%d calls are refused at once, want 10", refused)
		}
	})
}
