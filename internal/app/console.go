package app

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
)

// openConsole builds the console, the first part to open and the last to close.
func (a *App) openConsole(visitors login.Config, notice string) {
	a.metrics.Build(a.process.version, a.process.instance)
	a.metrics.Letters(a.letterCounts)
	var all []console.Check
	for _, name := range slices.Concat(required, a.degrading()) {
		check := a.checks.named(name)
		check.Part, check.Required = a.partOf(name), slices.Contains(required, name)
		if name == checkRedis {
			check.Note = a.regression
		}
		all = append(all, check)
	}
	a.console = console.New(console.Config{
		Instance: a.process.instance,
		Version:  a.process.version,
		Metrics:  a.metrics,
		Logger:   a.logger,
		Checks:   all,
		Admin:    a.admin,
		Hosts:    a.settings.HTTP.Names(),
		ReadOnly: a.settings.HTTP.ReadOnly,
		Login:    visitors,
		Notice:   notice,
		Refused:  a.recordConsoleRefusal,

		HideBodies:   !a.settings.HTTP.Bodies,
		Findings:     a.findings,
		Since:        a.peers.Since,
		Coordinators: a.fleetStats,
		Charts:       a.keptCharts(),
		Sums:         func() peerstats.Sums { return a.peers.Sums(time.Now()) },
		Owners: func(ctx context.Context) (halfmsg.Owners, error) {
			if store := a.store.Load(); store != nil {
				return store.Owners(ctx)
			}
			return halfmsg.Owners{}, cause.ErrNotOpen
		},
		Stats: func(ctx context.Context) ([]halfmsg.Stat, error) {
			if store := a.store.Load(); store != nil {
				return store.Stats(ctx)
			}
			return nil, cause.ErrNotOpen
		},
	})
	a.closeWith(closer{name: "console", close: func(ctx context.Context) error {
		return errors.Join(a.console.Stop(ctx), closeListener(a.doors.console))
	}})
}

// keptCharts are where the console keeps its charts; nil: nowhere.
func (a *App) keptCharts() console.Charts {
	if a.bounds.Unwatched {
		return nil
	}
	return charts{app: a}
}
