// Package httpapi serves gRPC services by HTTP: plain JSON, and the Connect protocol with JSON or protobuf.
//
// A call runs the same handler behind the same interceptors as a call of gRPC, within the same budgets of the guard.
// The package implements the Connect protocol itself, because a handler of the service descriptions needs no more than
// its framing. The library writes an error as code, message and details alone, without reason, field, state and
// retryDelay. It reads the body before any limit but that of the size, and ignores unknown fields of JSON.
package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/server/guard"
)

// Config configures an API. Every field is required.
type Config struct {
	Guard *guard.Guard
	// Services are served, each by the guard's Service.
	Services []Service
	// Unary and Stream are the interceptors of each call.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
	// Panicked returns the client's error of a panic outside the interceptors.
	Panicked func(method string, failure *lifecycle.PanicError) error
	// Refused is called for each request that no call of gRPC could be, such as one for an unknown path, with the
	// reason of its answer. It must not block.
	Refused func(reason string)
	// GRPC serves gRPC to clients that offer both versions of HTTP.
	GRPC http.Handler
	// OpenAPI describes the services, in YAML.
	OpenAPI []byte
	// Idle is when a connection without calls is closed.
	Idle   time.Duration
	Logger *slog.Logger
}

// Service is a service and its implementation.
type Service struct {
	Desc           *grpc.ServiceDesc
	Implementation any
}

// API is an HTTP server for the connections that a guard dispatches. It is safe for concurrent use.
type API struct {
	config Config
	server *http.Server
	// methods are found by their path.
	methods map[string]method
	// stopped is closed when Stop has ended.
	stopped chan struct{}
}

// method is a method of a service: unary, or with a stream of answers.
type method struct {
	path           string
	implementation any
	unary          *grpc.MethodDesc
	stream         *grpc.StreamDesc
}

const (
	// pathOpenAPI is where the description of the services is.
	pathOpenAPI = "/openapi.yaml"
	// maxStreams is how many calls an HTTP/2 connection may have in flight; a client opens more connections then.
	maxStreams = 250
	// connectionWindow and streamWindow bound what is received of bodies before they are admitted.
	connectionWindow = 256 << 10
	streamWindow     = 64 << 10
)

// New returns an API that is not serving yet.
func New(config Config) *API {
	a := &API{config: config, methods: map[string]method{}, stopped: make(chan struct{})}
	for _, s := range config.Services {
		for i := range s.Desc.Methods {
			path := "/" + s.Desc.ServiceName + "/" + s.Desc.Methods[i].MethodName
			a.methods[path] = method{path: path, implementation: s.Implementation, unary: &s.Desc.Methods[i]}
		}
		for i := range s.Desc.Streams {
			path := "/" + s.Desc.ServiceName + "/" + s.Desc.Streams[i].StreamName
			a.methods[path] = method{path: path, implementation: s.Implementation, stream: &s.Desc.Streams[i]}
		}
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // the guard has decrypted it
	a.server = &http.Server{
		Handler: a, ConnContext: guard.ConnContext, Protocols: protocols, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: guard.HandshakeTimeout, IdleTimeout: config.Idle, MaxHeaderBytes: guard.MaxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, SendPingTimeout: guard.PingAfter, PingTimeout: guard.PingTimeout,
			MaxReceiveBufferPerConnection: connectionWindow, MaxReceiveBufferPerStream: streamWindow,
		},
		ErrorLog: slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}
	return a
}

// Serve serves the connections that the guard dispatches, until Stop has ended, or the guard's listener is closed.
func (a *API) Serve() error {
	err := a.server.Serve(a.config.Guard.HTTP())
	switch {
	case errors.Is(err, http.ErrServerClosed):
		<-a.stopped
		return nil
	case errors.Is(err, net.ErrClosed):
		return nil
	}
	return err
}

// Stop accepts no more connections and waits for the calls in flight, until ctx ends. It must be called once.
func (a *API) Stop(ctx context.Context) error {
	defer close(a.stopped)
	return a.server.Shutdown(ctx)
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.config.Guard.IsAged(r) {
		w.Header().Set("Connection", "close")
	}
	if isBrowser(r) {
		a.refuse(w, r, problemf("BROWSER_FORBIDDEN",
			"requests of web pages are refused (headers Origin and Sec-Fetch-Site): call the API from a server, or by curl"))
		return
	}
	if r.URL.RawPath != "" { // a proxy that forbids a path would not know its other spellings
		a.refuse(w, r, a.noSuchPath(r))
		return
	}
	if r.URL.Path == pathOpenAPI && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		hurry(w, r)
		write(w, http.StatusOK, "application/yaml", a.config.OpenAPI)
		return
	}
	if r.ProtoMajor == 2 && isGRPC(r.Header.Get("Content-Type")) {
		a.serveGRPC(w, r)
		return
	}
	var err error
	if failure := lifecycle.Recovered(func() { err = a.serve(w, r) }); failure != nil {
		err = a.config.Panicked(r.URL.Path, failure)
	}
	if err != nil {
		a.refuse(w, r, err)
	}
}

// refuse answers with an error.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var of *problem
	if errors.As(err, &of) {
		a.config.Refused(of.reason)
	}
	hurry(w, r)
	writeError(w, err)
}

// isBrowser reports whether a web page has sent a request. Such a request is made with the rights of the page's reader,
// who does not know about it.
func isBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// isGRPC reports whether a content type is gRPC's. The type of gRPC for web pages is not.
func isGRPC(contentType string) bool {
	const of = "application/grpc"
	return contentType == of || strings.HasPrefix(contentType, of+"+") || strings.HasPrefix(contentType, of+";")
}

// serveGRPC hands a call over to gRPC. Its size is admitted when its prefix is there.
func (a *API) serveGRPC(w http.ResponseWriter, r *http.Request) {
	ctx, end, err := a.config.Guard.AdmitHTTP(r, r.URL.Path, -1)
	if err != nil {
		writeGRPCError(w, err)
		return
	}
	defer end()
	r = r.WithContext(ctx)
	r.Body = guard.Announcing(ctx, r.Body)
	a.config.GRPC.ServeHTTP(w, r)
}

// serve serves a call of the Connect protocol or of plain HTTP. A nil error says that the call is answered.
func (a *API) serve(w http.ResponseWriter, r *http.Request) error {
	m, ok := a.methods[r.URL.Path]
	if !ok {
		return a.noSuchPath(r)
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return problemf("METHOD_NOT_ALLOWED", "%s %s is not possible: every call is a POST", r.Method, m.path)
	}
	if m.stream != nil && m.stream.ClientStreams {
		return problemf("NEEDS_GRPC", "%s is a stream in both directions, which only gRPC carries here", m.path)
	}
	c, err := a.newCall(w, r, m)
	if err != nil {
		return err
	}
	ctx, end, err := a.config.Guard.AdmitHTTP(r, m.path, c.announced)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel, err := withTimeout(ctx, r)
	if err != nil {
		return err
	}
	defer cancel()
	c.deadline, _ = ctx.Deadline()
	ctx = withMetadata(ctx, r)
	if m.stream != nil {
		c.serveStream(ctx)
		return nil
	}
	return c.serveUnary(ctx)
}

// noSuchPath names the paths of the service, or the services.
func (a *API) noSuchPath(r *http.Request) error {
	service, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	var names []string
	for _, s := range a.config.Services {
		names = append(names, s.Desc.ServiceName)
		if s.Desc.ServiceName == service {
			names = nil
			for i := range s.Desc.Methods {
				names = append(names, s.Desc.Methods[i].MethodName)
			}
			for i := range s.Desc.Streams {
				if !s.Desc.Streams[i].ClientStreams {
					names = append(names, s.Desc.Streams[i].StreamName)
				}
			}
			break
		}
	}
	return problemf("PATH_UNKNOWN",
		"%.100q is no path of this port, where paths have no escaped letters: send POST /SERVICE/METHOD, with one of %s; "+
			"GET %s describes all",
		r.URL.EscapedPath(), strings.Join(names, ", "), pathOpenAPI)
}
