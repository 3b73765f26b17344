package server

import (
	"cmp"
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// problemsFor is how far back problems are listed when the request does not say.
const problemsFor = 24 * time.Hour

// ListProblems implements AdminService.
func (o *operators) ListProblems(
	ctx context.Context, r *adminv1.ListProblemsRequest,
) (*adminv1.ListProblemsResponse, error) {
	const call = "ListProblems"
	if err := understood(r); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	c := &check{}
	now := time.Now()
	since := cmp.Or(c.time("since", r.GetSince()), now.Add(-problemsFor))
	until := cmp.Or(c.time("until", r.GetUntil()), now)
	most := c.pageSize(r.GetPageSize())
	if err := c.err(); err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	ctx, cancel := o.server.withStoreTimeout(ctx)
	defer cancel()
	all, err := o.server.config.Problems(ctx, since, until)
	if err != nil {
		return nil, o.server.fail(ctx, call, err, halfmsg.None)
	}
	return &adminv1.ListProblemsResponse{Problems: all[:min(len(all), most)], More: len(all) > most}, nil
}
