// Package app knows all other rooms: it opens the parts of a coordinator, connects them, runs them and closes them.
//
// The order of opening is the order of need: the console first, so that a probe can read the state of the start; then
// Redis, the broker, the loops, and last the API. Closing goes in reverse order.
package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/access/oidc"
	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/app/tracing"
	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/connlimit"
	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/events"
	"github.com/msghandler/msghandler/internal/ground/files"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/operate"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/server"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// Deps are the dependencies of a coordinator beside its configuration.
type Deps struct {
	// Version is the version of the build; default "(devel)".
	Version string
	// Logger gets all log lines. Default slog.Default().
	Logger *slog.Logger
	// Configuration is where the settings come from. They are read again when its file changes, and for each value of
	// Reload. Nil: never.
	Configuration *config.Current
	Reload        <-chan struct{}
}

// App is one coordinator.
type App struct {
	// settings are those of the start. Values that need no restart are read from reloader.config.
	settings config.Config
	reloader reloader
	version  string
	instance string
	// startedAt is when New was called.
	startedAt time.Time
	logger    *slog.Logger

	apiListener, consoleListener net.Listener
	// share is how many connections each listener may have.
	share     connlimit.Share
	metrics   *console.Metrics
	console   *console.Console
	callbacks *callback.Client
	// attendance keeps the streams of producers that attend.
	attendance *attend.Hub
	// credentials are the API's TLS credentials; nil: nothing is encrypted.
	credentials credentials.TransportCredentials
	// consoleTLS is the console's TLS; nil: nothing is encrypted.
	consoleTLS *tls.Config
	// withdrawn says why a client certificate does not hold any more; nil without TLS.
	withdrawn func(credentials.AuthInfo) error
	// authenticator makes the identities of callers.
	authenticator *access.Authenticator
	// tokens and jwts are its sources; nil: there is none.
	tokens *tokenfile.File
	jwts   *oidc.Source
	events *events.Notifier
	// audit records changes and refused calls.
	audit  *audit.Trail
	tracer *tracing.Tracer // nil: no spans are wanted
	checks checks
	// storeAway and storeUnsafe are the last reports about Redis in the log.
	storeAway, storeUnsafe bool
	// store is set once Redis is open.
	store atomic.Pointer[redisstore.Store]
	// server is set once the API is open.
	server atomic.Pointer[server.Server]
	// clock knows the jumps of Redis's clock.
	clock redisClock
	// regressed describes the last data rollback of Redis, if there was one.
	regressed atomic.Pointer[string]

	// queues are the latest depths of the watched queues.
	queues atomic.Pointer[queueDepths]
	// letters are the queues of consumers' dead letters, once the brokers are known.
	letters atomic.Pointer[operate.Desk]
	// fullness is how full the masters of Redis were lately.
	fullness atomic.Pointer[[]redisstore.Fullness]
	unworked unworked
	// peers knows the other coordinators on the same Redis.
	peers *peers.Peers
	// life ends when the coordinator is to stop; end ends life.
	life context.Context
	end  context.CancelFunc
	// failed gets the error of the first part that ends by itself.
	failed  chan error
	serving lifecycle.Group

	// closers end the parts, in the order in which they were opened.
	closers []closer
	mu      sync.Mutex
	running bool
	// ended is closed when all parts are closed; stopErr names the parts that could not end in time.
	ended   chan struct{}
	stopErr error
}

// SettingsError says that the configuration cannot work: another start does not help.
type SettingsError struct{ error }

// New opens the listeners and builds the console. New fails when an address cannot be listened on, and with a
// SettingsError when the target of a producer is not allowed, or a certificate cannot be read. Run opens the other
// parts; an App without Run must be stopped.
func New(ctx context.Context, settings config.Config, deps Deps) (*App, error) {
	a := &App{
		settings:  settings,
		version:   cmp.Or(deps.Version, "(devel)"),
		instance:  newInstance(),
		startedAt: time.Now(),
		metrics:   console.NewMetrics(),
		failed:    make(chan error, 1),
		ended:     make(chan struct{}),
	}
	a.life, a.end = context.WithCancel(context.Background())
	a.logger = cmp.Or(deps.Logger, slog.Default()).With("coordinator", a.instance)
	a.peers = a.newPeers()
	a.attendance = a.newAttendance()
	a.openReloader(deps)
	a.warnExposed()
	var err error
	if a.callbacks, err = a.newCallbacks(); err != nil {
		return nil, err
	}
	if a.credentials, err = a.newCredentials(); err != nil {
		return nil, err
	}
	if a.consoleTLS, err = a.newConsoleTLS(); err != nil {
		return nil, err
	}
	if a.authenticator, err = a.newAuthenticator(); err != nil {
		return nil, err
	}
	visitors, notice, err := a.newLogin()
	if err != nil {
		return nil, err
	}
	a.divideConnections()
	if a.consoleListener, err = a.listen(ctx, "http.addr", settings.HTTP.Addr); err != nil {
		return nil, err
	}
	if a.apiListener, err = a.listen(ctx, "grpc.addr", settings.GRPC.Addr); err != nil {
		return nil, errors.Join(err, a.consoleListener.Close())
	}
	a.openAudit()
	a.openConsole(visitors, notice)
	a.openEvents()
	if err := a.openTracing(ctx); err != nil {
		return nil, errors.Join(
			err, a.consoleListener.Close(), a.apiListener.Close(), a.events.Close(ctx), a.audit.Close(ctx))
	}
	a.closeWith(closer{name: "callbacks", close: func(context.Context) error {
		a.callbacks.Close()
		return nil
	}})
	a.closeWith(closer{name: "grpc listener", close: func(context.Context) error { return closeListener(a.apiListener) }})
	return a, nil
}

// warnExposed warns of files with secrets that every user of the machine may read or write. The source of the tokens
// warns of its own file.
func (a *App) warnExposed() {
	for _, file := range a.settings.PrivateFiles {
		if may := files.Exposed(file.Path); may != "" && file.Key != "access.token_file" {
			a.logger.Warn("every user of this machine may "+may+" a file with secrets; chmod o-rw the file",
				"holds", file.What(), "path", file.Path)
		}
	}
}

// openTracing begins to export spans if the environment asks for spans.
func (a *App) openTracing(ctx context.Context) (err error) {
	if !tracing.Wanted() {
		return nil
	}
	if a.tracer, err = tracing.Open(ctx, a.version, a.instance, a.logger); err != nil {
		return err
	}
	a.closeWith(closer{name: "tracing", close: a.tracer.Close})
	return nil
}

// newInstance names this process among all coordinators of a Redis: host, process id and random letters, since a
// restarted process may get the same id.
func newInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:6])
}

func (a *App) listen(ctx context.Context, key, addr string) (net.Listener, error) {
	config := net.ListenConfig{Control: connlimit.UserTimeout(userTimeout)}
	listener, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; %s", key, addr, err, listenRemedy(err))
	}
	return listener, nil
}

// listenRemedy names the action for an address that cannot be listened on.
func listenRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what listens there, or set another address"
	case errors.Is(err, syscall.EACCES):
		return "set a port from 1024 on, or run with CAP_NET_BIND_SERVICE"
	}
	return "set an address that this machine has, or leave the host out (:9090) for all of its addresses"
}

// closeListener closes a listener; a listener that its server has closed is no error.
func closeListener(l net.Listener) error {
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// GRPCAddr is where the API listens, with the real port.
func (a *App) GRPCAddr() string { return a.apiListener.Addr().String() }

// HTTPAddr is where the console listens.
func (a *App) HTTPAddr() string { return a.consoleListener.Addr().String() }

// Instance is the name of this coordinator among all coordinators of its Redis.
func (a *App) Instance() string { return a.instance }

// Run opens the parts and serves until the context ends, Stop is called or a part fails. Then Run closes the parts, and
// returns the error of the failed part. While Redis is unreachable at the start, Run waits. Run can be called once.
func (a *App) Run(ctx context.Context) error {
	a.mu.Lock()
	if a.running {
		a.mu.Unlock()
		return errors.New("this coordinator has been run already")
	}
	a.running = true
	a.mu.Unlock()
	defer close(a.ended)
	defer context.AfterFunc(ctx, a.end)()

	err := a.open(a.life)
	if err == nil {
		a.logger.Info("serving", "grpc_address", a.GRPCAddr(), "http_address", a.HTTPAddr(), "version", a.version)
		select {
		case <-a.life.Done():
		case err = <-a.failed:
			a.peers.Break()
		}
	} else if a.life.Err() != nil {
		// Stopped while opening: no failure.
		err = nil
	}
	if stopErr := a.close(context.Background()); stopErr != nil {
		a.logger.Warn("some parts did not end in time: the next lease holder takes their messages", "cause", stopErr)
	}
	return err
}

// open opens the parts in the order of need.
func (a *App) open(ctx context.Context) error {
	a.watchConfiguration()
	limited := a.limited(httpListener, a.consoleListener, a.share.Console, a.share.ConsolePerAddress)
	if a.consoleTLS != nil {
		limited = tls.NewListener(limited, a.consoleTLS)
	}
	a.serve("console", func() error { return a.console.Serve(limited) })
	store, err := a.openStore(ctx)
	if err != nil {
		return err
	}
	urls, err := a.amqpURLs()
	if err != nil {
		return err
	}
	opened, err := a.openBrokers(urls)
	if err != nil {
		return err
	}
	if err := a.openOutboxes(opened); err != nil {
		return err
	}
	if err := a.watchBacklog(store, urls); err != nil {
		return err
	}
	if err := a.openLetters(urls); err != nil {
		return err
	}
	if err := a.watchUndecided(store); err != nil {
		return err
	}
	a.openAttendance(store)
	return a.openPipeline(store, opened)
}

// serve runs a part until the part ends. An error ends the coordinator.
func (a *App) serve(name string, part func() error) {
	a.serving.Go(func() {
		if err := part(); err != nil {
			select {
			case a.failed <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		}
	})
}
