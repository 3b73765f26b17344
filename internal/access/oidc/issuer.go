package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

const (
	// fetchEvery is the interval of fetches. A key that the issuer withdraws is refused after this time, and the time of
	// a fetch.
	fetchEvery = 20 * time.Second
	// fetchTimeout is how long a fetch may take.
	fetchTimeout = 10 * time.Second
	// fetchAgainAfter is the least time between two fetches. Strangers can ask for a fetch by JWTs with unknown keys.
	fetchAgainAfter = 5 * time.Second
	// fetchWait is how long a call waits for a fetch.
	fetchWait = 3 * time.Second
	// maxWaiting is how many calls may wait for a fetch. Strangers can make calls wait too.
	maxWaiting = 1000
	// discoverEvery is how long the addresses of the issuer are valid.
	discoverEvery = time.Hour
)

// fetchRetries are the delays after failed fetches.
var fetchRetries = backoff.Exponential(time.Second, fetchEvery)

// issuer fetches the addresses and the keys of an issuer, again and again. The key set of go-oidc does not: it keeps a
// withdrawn key until a JWT names an unknown one, and each such JWT makes it fetch.
type issuer struct {
	url    string
	client func() *http.Client
	logger *slog.Logger

	// keys are the last that were fetched; nil before the first fetch.
	keys atomic.Pointer[keys]
	// failing says that the last fetch has failed.
	failing atomic.Bool
	// demands are for a fetch at once. A demand is taken between two fetches only.
	demands chan struct{}
	// waiting has a token for each call that waits for a fetch.
	waiting chan struct{}

	// provider and discovered are known to the goroutine of run only.
	provider   *oidclib.Provider
	discovered time.Time
}

func newIssuer(url string, client func() *http.Client, logger *slog.Logger) *issuer {
	return &issuer{
		url: url, client: client, logger: logger, demands: make(chan struct{}), waiting: make(chan struct{}, maxWaiting),
	}
}

// run fetches until the context ends.
func (i *issuer) run(ctx context.Context) {
	var before error
	for failures := 0; ctx.Err() == nil; {
		err := i.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		i.report(err, before)
		i.failing.Store(err != nil)
		before = err
		if err == nil {
			failures = 0
			i.rest(ctx, fetchEvery)
			continue
		}
		i.rest(ctx, fetchRetries.Delay(failures))
		failures++
	}
}

// rest waits for the time of the next fetch, or for a demand. Demands just after a fetch ask for nothing new.
func (i *issuer) rest(ctx context.Context, wait time.Duration) {
	fetched, over := time.Now(), time.After(wait)
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-i.demands:
			if time.Since(fetched) >= fetchAgainAfter {
				return
			}
		}
	}
}

// report logs each new reason of a failure, and the end of a failure.
func (i *issuer) report(err, before error) {
	switch {
	case err == nil && before != nil:
		i.logger.Info("OIDC issuer answers again; its keys are current", "issuer", i.url)
	case err == nil || before != nil && before.Error() == err.Error():
	case i.keys.Load() == nil:
		i.logger.Warn("OIDC issuer unavailable; JWTs are refused until it answers; fetching again",
			"issuer", i.url, "cause", err)
	default:
		i.logger.Warn("OIDC issuer unavailable; the keys fetched before stay valid; fetching again",
			"issuer", i.url, "cause", err)
	}
}

// keysFor returns the issuer's keys, of which at least a single key may have signed a JWT with this header.
func (i *issuer) keysFor(ctx context.Context, header jose.Header) (*keys, error) {
	if k := i.keys.Load(); len(k.matching(header)) > 0 {
		return k, nil
	}
	isCurrent := i.refetch(ctx) && !i.failing.Load()
	k := i.keys.Load()
	switch {
	case len(k.matching(header)) > 0:
		return k, nil
	case k == nil:
		return nil, errNoKeys
	case !isCurrent:
		return nil, errKeyMissed
	}
	return nil, errKeyUnknown
}

// refetch waits for a new fetch, unless the last fetch was just now. It returns false where too many calls wait, or the
// fetch takes too long.
func (i *issuer) refetch(ctx context.Context) bool {
	select {
	case i.waiting <- struct{}{}:
		defer func() { <-i.waiting }()
	default:
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	// The first demand begins a fetch where one is due, and the second is taken after its end.
	for range 2 {
		select {
		case i.demands <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// fetch fetches the keys, and the addresses where they are unknown or old.
func (i *issuer) fetch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(oidclib.ClientContext(ctx, i.client()), fetchTimeout)
	defer cancel()
	if i.provider == nil || time.Since(i.discovered) >= discoverEvery {
		if err := i.discover(ctx); err != nil {
			return err
		}
	}
	document, err := i.fetchKeys(ctx)
	if err == nil {
		err = i.use(document)
	}
	if err != nil {
		i.provider = nil // the keys may have moved
		return fmt.Errorf("fetch keys: %s", shortened(err))
	}
	return nil
}

func (i *issuer) use(document string) error {
	if before := i.keys.Load(); before != nil && before.document == document && before.provider == i.provider {
		return nil
	}
	k, err := newKeys(i.provider, document)
	if err != nil {
		return err
	}
	i.keys.Store(k)
	return nil
}

// discover asks for the issuer's addresses. An address without TLS is refused as that of the issuer is.
func (i *issuer) discover(ctx context.Context) error {
	provider, err := oidclib.NewProvider(ctx, i.url)
	if err != nil {
		return fmt.Errorf("fetch addresses: %s", shortened(err))
	}
	addresses := []string{keysAddress(provider)}
	for _, address := range []string{provider.Endpoint().AuthURL, provider.Endpoint().TokenURL} {
		if address != "" { // an issuer without logins
			addresses = append(addresses, address)
		}
	}
	for _, address := range addresses {
		if err := access.CheckSecureURL(address); err != nil {
			return fmt.Errorf("fetch addresses: an address of the issuer %w", err)
		}
	}
	i.provider, i.discovered = provider, time.Now()
	return nil
}

// keysAddress is the address of the issuer's keys.
func keysAddress(provider *oidclib.Provider) string {
	var found struct {
		Keys string `json:"jwks_uri"`
	}
	_ = provider.Claims(&found) // the library has read the same text
	return found.Keys
}

func (i *issuer) fetchKeys(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, keysAddress(i.provider), nil)
	if err != nil {
		return "", err
	}
	answer, err := i.client().Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", errors.New("the status is " + answer.Status)
	}
	document, err := io.ReadAll(answer.Body)
	return string(document), err
}
