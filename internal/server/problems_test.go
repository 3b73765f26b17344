package server_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestListProblemsIsBounded(t *testing.T) {
	t.Parallel()
	var since, until time.Time
	h := open(t, func(c *server.Config) {
		c.Problems = func(_ context.Context, from, to time.Time) (all []*adminv1.Finding, err error) {
			since, until = from, to
			for i := range 150 {
				all = append(all, &adminv1.Finding{Name: fmt.Sprint(i)})
			}
			return all, nil
		}
	})
	answer, err := h.operators.ListProblems(t.Context(), &adminv1.ListProblemsRequest{})
	must.Succeed(t, err)
	if len(answer.GetProblems()) != 100 || !answer.GetMore() || until.Sub(since) != 24*time.Hour {
		t.Errorf("%d problems from %v to %v", len(answer.GetProblems()), since, until)
	}
	night := time.Date(2026, 11, 29, 2, 10, 0, 0, time.UTC)
	answer, err = h.operators.ListProblems(t.Context(), &adminv1.ListProblemsRequest{
		Since: timestamppb.New(night), Until: timestamppb.New(night.Add(time.Hour)), PageSize: 150,
	})
	must.Succeed(t, err)
	if len(answer.GetProblems()) != 150 || answer.GetMore() || !since.Equal(night) || until.Sub(since) != time.Hour {
		t.Errorf("%d problems from %v to %v", len(answer.GetProblems()), since, until)
	}
	for what, bad := range map[string]*adminv1.ListProblemsRequest{
		"page_size": {PageSize: 1001}, "since": {Since: &timestamppb.Timestamp{Nanos: -1}},
	} {
		_, err := h.operators.ListProblems(t.Context(), bad)
		if err == nil {
			t.Errorf("%s: no error", what)
			continue
		}
		wantCode(t, err, codes.InvalidArgument)
	}
}
