// Package console is the operators' door over HTTP: the pages, /metrics, /healthz and /readyz.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Config says what the console shows.
type Config struct {
	// Instance names this coordinator among those that share its Redis.
	Instance string
	// Version is what was built.
	Version string
	// Checks are what /readyz and the pages tell of. They may be called concurrently.
	Checks []Check
	// Stats counts the messages. It is asked at most once each statsInterval. Required.
	Stats func(ctx context.Context) ([]halfmsg.Stat, error)
	// Owners tells who works on messages. It is asked as seldom as Stats. Default: nobody is known.
	Owners func(ctx context.Context) (halfmsg.Owners, error)
	// Admin gives the admin API on behalf of somebody at an address, or nil while it is not open. Default: it never is.
	Admin func(by string) pages.Admin
	// Findings tells what somebody should act on, the worst first, beside the checks. Default: nothing ever.
	Findings func() []*msghandlerv1.Finding
	// Hosts are names under which the pages are served, beside localhost and IP addresses.
	Hosts []string
	// ReadOnly leaves out of the pages whatever changes messages.
	ReadOnly bool
	// Metrics is what /metrics serves. Default: NewMetrics().
	Metrics *Metrics
	// Logger gets what goes wrong while serving. Default slog.Default().
	Logger *slog.Logger
}

// Check is one condition that a coordinator in good order meets.
type Check struct {
	Name string
	// Required says that no half message can be accepted while the condition does not hold: /readyz then answers 503. Any
	// other check that fails makes the coordinator degraded, and leaves it ready.
	Required bool
	// Run returns nil when the condition holds, and otherwise why not. Its context ends after a few seconds.
	Run func(ctx context.Context) error
	// Note returns what else an operator should know although the condition holds, or "". Nil: nothing ever.
	Note func() string
}

// statsInterval is how old the counts may be. The more messages are stored, the more counting costs Redis.
const statsInterval = 5 * time.Second

// Timeouts of the HTTP server. The page and the metrics are small; a peer that takes longer is not a browser.
const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
	maxHeaders    = 16 << 10
)

// Console serves the pages. It is safe for concurrent use.
type Console struct {
	config   Config
	stats    *stats
	ring     history.Ring
	pages    *pages.Pages
	requests *requests
	server   *http.Server
	stopping atomic.Bool
}

// New returns a console that does not serve yet.
func New(config Config) *Console {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Owners == nil {
		config.Owners = func(context.Context) (halfmsg.Owners, error) { return halfmsg.Owners{}, nil }
	}
	if config.Admin == nil {
		config.Admin = func(string) pages.Admin { return nil }
	}
	if config.Metrics == nil {
		config.Metrics = NewMetrics()
	}
	c := &Console{config: config, stats: newStats(config.Stats, statsInterval), requests: newRequests()}
	config.Metrics.registry.MustRegister(c.stats)
	owners := &kept[halfmsg.Owners]{read: config.Owners, interval: statsInterval}
	c.pages = pages.New(pages.Config{
		Instance: config.Instance, Version: config.Version, Hosts: config.Hosts, ReadOnly: config.ReadOnly, Admin: config.Admin,
		Check: func(ctx context.Context) []pages.Checked { return c.check(ctx).Checks },
		Stats: c.stats.get, Owners: owners.get, Undecided: config.Metrics.overdue, Board: config.Metrics.board, Ring: &c.ring, Findings: config.Findings, Logger: config.Logger,
	})
	c.server = &http.Server{
		Handler:           c.requests.whole(c.routes()),
		ConnContext:       withConn,
		ConnState:         c.requests.heed,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       answerTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}
	return c
}

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	c.pages.Register(mux)
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", c.ready)
	mux.Handle("GET /metrics", c.config.Metrics.handler())
	return mux
}

// Serve answers requests until Stop. It returns nil after Stop.
func (c *Console) Serve(listener net.Listener) error {
	ctx, end := context.WithCancel(context.Background())
	var sampling sync.WaitGroup
	sampling.Go(func() { c.sample(ctx) })
	defer sampling.Wait()
	defer end()
	if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("console: %w", err)
	}
	return nil
}

// SetStopping makes /readyz say no from now on, whatever the checks say.
func (c *Console) SetStopping() { c.stopping.Store(true) }

// Stop lets requests end that are being answered, and closes the door and all other connections at once. When ctx ends first
// it closes those as well.
func (c *Console) Stop(ctx context.Context) error {
	c.SetStopping()
	c.requests.end()
	if err := c.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("console: requests were still running: %w", errors.Join(err, c.server.Close()))
	}
	return nil
}
