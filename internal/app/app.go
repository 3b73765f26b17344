// Package app knows all other rooms: it opens the parts of a coordinator, connects them, runs them and closes them.
//
// The order of opening is the order of need: the console first, so that a probe can read the state of the start; then
// Redis, the broker, the loops, and last the API. Closing goes in reverse order.
package app

import (
	"crypto/rand"
	"crypto/tls"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
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
	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/internal/ground/network"
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
	// Network is how the coordinator reaches Redis, brokers and producers, and is reached. Default: the machine's.
	Network network.Network
	// OpenDatabase opens the database of an outbox, which is PostgreSQL. Nil: by the driver of its DSN.
	OpenDatabase func(dsn string) *sql.DB
	// Bounds are for tests.
	Bounds Bounds
}

// App is one coordinator.
type App struct {
	// settings are those of the start. Values that need no restart are read from reloader.config.
	settings config.Config
	bounds   Bounds
	reloader reloader
	process  process
	logger   *slog.Logger
	doors    doors
	metrics  *console.Metrics
	console  *console.Console
	// callbacks calls producers, and attendance keeps the streams of those that attend.
	callbacks  *callback.Client
	attendance *attend.Hub
	callers    callers
	events     *events.Notifier
	// audit records changes and refused calls.
	audit  *audit.Trail
	tracer *tracing.Tracer // nil: no spans are wanted
	checks checks
	// store is set once Redis is open.
	store atomic.Pointer[redisstore.Store]
	redis redisState
	// backlog is what waits for others, as it was counted last.
	backlog backlog
	// slow is what is slow, though nothing fails.
	slow slow
	// peers knows the other coordinators on the same Redis.
	peers *peers.Peers
	lifetime
}

// process is this process among all coordinators of a Redis.
type process struct {
	version, instance string
	// startedAt is when New was called.
	startedAt    time.Time
	network      network.Network
	openDatabase func(dsn string) *sql.DB
}

// doors are where others reach the coordinator, and what a door asks them to show.
type doors struct {
	api, console net.Listener
	// server answers at api. It is set once the API is open.
	server atomic.Pointer[server.Server]
	// share is how many connections each listener may have.
	share connlimit.Share
	// apiTLS are the API's TLS credentials, and consoleTLS those of the console; nil: nothing is encrypted.
	apiTLS     credentials.TransportCredentials
	consoleTLS *tls.Config
	// certificates are those in use, at the doors of this coordinator and of the servers that it needs.
	certificates expiry.Book
	// withdrawn says why a client certificate does not hold any more; nil without TLS.
	withdrawn func(credentials.AuthInfo) error
}

// callers makes the identities of callers.
type callers struct {
	authenticator *access.Authenticator
	// tokens and jwts are its sources; nil: there is none.
	tokens *tokenfile.File
	jwts   *oidc.Source
}

// redisState is how Redis was found lately.
type redisState struct {
	// away and unsafe are the last reports in the log. Only the loop that reports each touches it.
	away, unsafe bool
	clock        redisClock
	// regressed describes the last data rollback, if there was one.
	regressed atomic.Pointer[string]
	// fullness is how full the masters were.
	fullness atomic.Pointer[[]redisstore.Fullness]
}

// backlog is what waits for others, as it was counted last.
type backlog struct {
	// queues are the depths of the watched queues.
	queues atomic.Pointer[queueDepths]
	// letters are the queues of consumers' dead letters, once the brokers are known.
	letters  atomic.Pointer[operate.Desk]
	unworked unworked
}

// SettingsError says that the configuration cannot work: another start does not help.
type SettingsError struct{ error }

// WrongUsage marks the error: the exit status is that of wrong usage.
func (SettingsError) WrongUsage() {}

// newInstance names this process among all coordinators of a Redis: host, process id and random letters, since a
// restarted process may get the same id.
func newInstance() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:6])
}

// GRPCAddr is where the API listens, with the real port.
func (a *App) GRPCAddr() string { return a.doors.api.Addr().String() }

// HTTPAddr is where the console listens.
func (a *App) HTTPAddr() string { return a.doors.console.Addr().String() }

// Instance is the name of this coordinator among all coordinators of its Redis.
func (a *App) Instance() string { return a.process.instance }
