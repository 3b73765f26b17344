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

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// Config configures a Console.
type Config struct {
	// Instance names this coordinator among the coordinators of its Redis.
	Instance string
	// Version is the version of the build.
	Version string
	// Checks are the checks of /readyz and the pages. They may run concurrently.
	Checks []Check
	// Stats counts the messages, called at most once each statsInterval. Required.
	Stats func(ctx context.Context) ([]halfmsg.Stat, error)
	// Coordinators lists the coordinators on the same Redis. Default: none.
	Coordinators func() []*adminv1.Coordinator
	// Charts keep the counts of all coordinators. Default: none are kept.
	Charts Charts
	// Sums are the sums of all coordinators. Default: the counts of Metrics.
	Sums func() peerstats.Sums
	// Owners lists the lease holders, called as seldom as Stats. Default: none.
	Owners func(ctx context.Context) (halfmsg.Owners, error)
	// Admin returns the admin API for a caller at an address, or nil while the API is not open. Default: always nil.
	Admin func(by string) pages.Admin
	// Findings lists problems for operators beside the checks, the worst first. Default: none.
	Findings func() []*adminv1.Finding
	// Since is when the present problem of a name and a remedy began; zero: unknown. Default: always unknown.
	Since func(name, remedy string) time.Time
	// Hosts are names under which the console is served, beside localhost and IP addresses.
	Hosts []string
	// ReadOnly removes all changes of messages from the pages, and HideBodies the bodies and headers.
	ReadOnly, HideBodies bool
	// Notice is shown on each page.
	Notice string
	// Login says who uses the console; Show and Refused are set here. Required.
	Login login.Config
	// Refused gets each refused request, and why: a proof that does not hold, or a role that is too low. Default: none.
	Refused func(r *http.Request, why string)
	// Metrics are the metrics of /metrics. Default: NewMetrics().
	Metrics *Metrics
	// Logger gets the errors of serving. Default slog.Default().
	Logger *slog.Logger
}

// Check is a condition of a healthy coordinator.
type Check struct {
	Name string
	// Part is the part that the check is about, which decides the cause of an error.
	Part cause.Part
	// Required says that no half message can be accepted while the check fails: /readyz then answers 503. With any other
	// failing check the coordinator is degraded and still ready.
	Required bool
	// Run returns nil when the condition holds, and otherwise the cause. Its context ends after a few seconds.
	Run func(ctx context.Context) error
	// Note returns a further warning for operators, or "". May be nil.
	Note func() string
}

// statsInterval is how old the counts may be. The more messages are stored, the more counting costs Redis.
const statsInterval = 5 * time.Second

// Timeouts of the HTTP server. Pages and metrics are small; a slower peer is not a browser.
const (
	headerTimeout = 5 * time.Second
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
	maxHeaders    = 16 << 10
)

// Console serves the pages. A Console is safe for concurrent use.
type Console struct {
	config   Config
	stats    *stats
	pages    *pages.Pages
	gate     *login.Gate
	requests *requests
	server   *http.Server
	stopping atomic.Bool
}

// New returns a console; Serve starts serving.
func New(config Config) *Console {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Coordinators == nil {
		config.Coordinators = func() []*adminv1.Coordinator { return nil }
	}
	if config.Owners == nil {
		config.Owners = func(context.Context) (halfmsg.Owners, error) { return halfmsg.Owners{}, nil }
	}
	if config.Admin == nil {
		config.Admin = func(string) pages.Admin { return nil }
	}
	if config.Metrics == nil {
		config.Metrics = NewMetrics()
	}
	if config.Charts == nil {
		config.Charts = noCharts{}
	}
	if config.Sums == nil {
		config.Sums = func() peerstats.Sums { return peerstats.Sum(config.Metrics.Report(time.Now())) }
	}
	c := &Console{config: config, requests: newRequests()}
	c.stats = newStats(config.Stats, config.Metrics.peers, statsInterval)
	config.Metrics.registry.MustRegister(c.stats, problemCollector{c})
	owners := &cached[halfmsg.Owners]{read: config.Owners, interval: statsInterval}
	config.Login.Refused = config.Refused
	config.Login.Show = func(w http.ResponseWriter, r *http.Request, view login.View) { c.pages.ShowLogin(w, r, view) }
	c.gate = login.New(config.Login)
	c.pages = pages.New(pages.Config{
		Instance: config.Instance, Version: config.Version, ReadOnly: config.ReadOnly, HideBodies: config.HideBodies,
		Notice: config.Notice, LogsIn: c.gate.LogsIn(), Refused: config.Refused, Admin: config.Admin,
		Check: func(ctx context.Context) []pages.Checked { return c.check(ctx).Checks },
		Stats: c.stats.get, Owners: owners.get, Coordinators: config.Coordinators,
		Overdue: config.Metrics.overdueFor, Peers: func() pages.Peers { return config.Sums() },
		Charts: newChartCache(config.Charts).get, Findings: config.Findings, Since: config.Since, Logger: config.Logger,
	})
	c.server = &http.Server{
		Handler:           c.requests.afterBody(c.routes()),
		ConnContext:       withConn,
		ConnState:         c.requests.trackState,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       answerTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaders,
		ErrorLog:          slog.NewLogLogger(config.Logger.Handler(), slog.LevelDebug),
	}
	return c
}

// routes: the health is for everyone under any name. All else is for known names; the login and its style are for
// everyone there, and all other pages for callers with a role.
func (c *Console) routes() http.Handler {
	known := http.NewServeMux()
	c.pages.Register(known)
	known.Handle("GET /metrics", c.pages.ForViewers(c.config.Metrics.handler()))
	open := http.NewServeMux()
	c.gate.Register(open)
	open.HandleFunc("GET /static/", pages.Static)
	open.Handle("/", c.gate.Require(known))
	all := http.NewServeMux()
	all.HandleFunc("GET /healthz", healthy)
	all.HandleFunc("GET /readyz", c.ready)
	all.Handle("/", c.knownHost(http.NewCrossOriginProtection().Handler(open)))
	return guarded(all)
}

// Serve answers requests until Stop, and then returns nil.
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

// SetStopping makes /readyz fail from now on, also when all checks pass.
func (c *Console) SetStopping() { c.stopping.Store(true) }

// Stop closes the listener and all idle connections, and waits for the requests being answered. When ctx ends first,
// Stop closes their connections too.
func (c *Console) Stop(ctx context.Context) error {
	c.SetStopping()
	c.requests.end()
	if err := c.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("console: requests were still running: %w", errors.Join(err, c.server.Close()))
	}
	return nil
}
