package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
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

// issuer fetches the addresses and the keys of an issuer, again and again.
type issuer struct {
	url    string
	client func() *http.Client
	logger *slog.Logger

	// keys are the last that were fetched; nil before the first fetch.
	keys atomic.Pointer[keys]
	// wake asks for a fetch at once.
	wake chan struct{}
	// waiting has a token for each call that waits for a fetch.
	waiting chan struct{}

	mu sync.Mutex
	// fetching is closed at the end of the current or demanded fetch; nil without one.
	fetching chan struct{}
	// fetched is when the last fetch ended, and failure its error.
	fetched time.Time
	failure error

	// provider and discovered are known to the goroutine of run only.
	provider   *oidclib.Provider
	discovered time.Time
}

func newIssuer(url string, client func() *http.Client, logger *slog.Logger) *issuer {
	return &issuer{
		url: url, client: client, logger: logger, wake: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting),
	}
}

// run fetches until the context ends.
func (i *issuer) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		done := i.begin()
		err := i.fetch(ctx)
		if ctx.Err() == nil {
			i.report(err)
		}
		i.end(done, err)
		wait := fetchEvery
		if err != nil {
			wait = fetchRetries.Delay(failures)
			failures++
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-i.wake:
		case <-time.After(wait):
		}
	}
}

// begin begins a fetch: the demanded fetch, where there is a demand.
func (i *issuer) begin() (done chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	select {
	case <-i.wake:
	default:
	}
	if i.fetching == nil {
		i.fetching = make(chan struct{})
	}
	return i.fetching
}

func (i *issuer) end(done chan struct{}, failure error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fetching, i.fetched, i.failure = nil, time.Now(), failure
	close(done)
}

// report logs each new reason of a failure, and the end of a failure.
func (i *issuer) report(err error) {
	i.mu.Lock()
	before := i.failure
	i.mu.Unlock()
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
	i.refetch(ctx)
	k := i.keys.Load()
	switch {
	case len(k.matching(header)) > 0:
		return k, nil
	case k == nil:
		return nil, errNoKeys
	case !i.isCurrent():
		return nil, errKeyMissed
	}
	return nil, errKeyUnknown
}

// refetch waits for a new fetch, unless the last fetch was just now, or too many calls wait.
func (i *issuer) refetch(ctx context.Context) {
	done := i.demand()
	if done == nil {
		return
	}
	select {
	case i.waiting <- struct{}{}:
		defer func() { <-i.waiting }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// demand returns a channel that is closed at the end of the next fetch; nil where the last fetch was just now.
func (i *issuer) demand() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fetching != nil {
		return i.fetching
	}
	if time.Since(i.fetched) < fetchAgainAfter {
		return nil
	}
	i.fetching = make(chan struct{})
	i.wake <- struct{}{} // has room: begin takes the demand before there is another
	return i.fetching
}

// isCurrent says whether the last fetch has succeeded, and no other has begun.
func (i *issuer) isCurrent() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failure == nil && i.fetching == nil
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
