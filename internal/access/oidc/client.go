package oidc

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"

	"github.com/msghandler/msghandler/proto/certs"
)

// maxAnswer is the longest answer of the issuer that is read, in bytes.
const maxAnswer = 1 << 20

// httpClient makes clients for calls to the issuer. Each client trusts the authorities of the moment: their file may
// change.
type httpClient struct {
	authorities *certs.Source
	handshake   func(server string, state tls.ConnectionState, err error)
}

func (c httpClient) make() *http.Client {
	secured := c.authorities.ClientConfig("")
	if c.handshake != nil {
		secured.VerifyConnection = func(state tls.ConnectionState) error {
			c.handshake(state.ServerName, state, nil)
			return nil
		}
	}
	return bounded(failures{&http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secured, ForceAttemptHTTP2: true,
		DisableKeepAlives: true, // calls are rare, and the client is not used again
	}, c.handshake})
}

// failures reports the errors with which no connection came about.
type failures struct {
	http.RoundTripper
	handshake func(server string, state tls.ConnectionState, err error)
}

// RoundTrip implements http.RoundTripper.
func (f failures) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := f.RoundTripper.RoundTrip(request)
	if err != nil && f.handshake != nil {
		f.handshake(request.URL.Hostname(), tls.ConnectionState{}, err)
	}
	return answer, err
}

// bounded is a client whose calls are bounded in time and size, and go to the named address only.
func bounded(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: boundedTransport{transport}, Timeout: fetchTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the issuer answers with a redirect, which is not followed; name the address of the issuer itself")
		},
	}
}

type boundedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	answer.Body = boundedBody{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	return answer, nil
}

type boundedBody struct {
	io.Reader
	io.Closer
}
