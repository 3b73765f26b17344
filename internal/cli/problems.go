package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type problemsCommand struct {
	adminFlags
	watchFlags
	Since string `default:"24h" help:"Only problems since then: 7d, 02:10 or 2026-11-29 02:10 of UTC." placeholder:"WHEN"`
	Until string `help:"Only those that began until then: 10m, or the first 02:30 after --since." placeholder:"WHEN"`
	Limit int    `default:"100" help:"How many at most, the latest; 1,000 at most."`
}

// Help returns the text below the usage in --help.
func (c *problemsCommand) Help() string {
	return `problems prints what was wrong, the latest first: the problems that last, and those that have ended, of all
coordinators, with their start, how long they lasted, and where. The same cause at several coordinators is one problem.
Starts and stops of coordinators are listed too. Redis keeps about the latest 1,000 of 7 days. doctor prints why a
present problem matters.`
}

// Run prints problems.
func (c *problemsCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Limit < 1 || c.Limit > maxPage {
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: a list has 1 to %d lines", c.Limit, maxPage)}
	}
	return c.runAsking(ctx, s, &c.adminFlags, c.once)
}

// once prints problems. Ages are those at the call.
func (c *problemsCommand) once(ctx context.Context, s *commandline.Session, a *admin) error {
	now := time.Now()
	since, until, err := operate.ParseSpan(c.Since, c.Until, now)
	if err != nil {
		return wrongText(err)
	}
	response, err := a.client.ListProblems(ctx, &adminv1.ListProblemsRequest{
		Since: since, Until: until, PageSize: int32(c.Limit), //nolint:gosec // at most maxPage
	})
	if err != nil {
		return err
	}
	all := response.GetProblems()
	document := map[string]any{"problems": coordinatorFindings(all), "more": response.GetMore()}
	err = s.PrintDocument(c.Output, document, func() [][]string { return problemRows(all, now) })
	return errors.Join(err, cut(s, c.Output, c.Limit, response.GetMore()))
}

// problemRows are problems for people, with the remedy below each.
func problemRows(all []*adminv1.Finding, now time.Time) [][]string {
	if len(all) == 0 {
		return [][]string{{"no problems"}}
	}
	rows := [][]string{{"START (UTC)", "LASTED", "SEVERITY", "NAME", "WHAT"}}
	for _, f := range all {
		lasted := operate.Lasting(f, now)
		if f.GetEndTime() == nil {
			lasted = "lasts for " + lasted
		}
		where := ""
		if len(f.GetCoordinators()) > 0 {
			where = " (" + strings.Join(f.GetCoordinators(), ", ") + ")"
		}
		rows = append(rows, []string{
			clock(f.GetStartTime()), cmp.Or(lasted, "-"),
			strings.ToUpper(cmp.Or(severityName(f.GetSeverity()), "-")), f.GetName(), f.GetWhat() + where,
		})
		if remedy := operate.Remedy(f); remedy != "" {
			rows = append(rows, []string{"", "", "", "do:", remedy})
		}
	}
	return rows
}
