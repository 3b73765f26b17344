package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/peer"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// unreadRefusal is a refusal of a request before the request is decoded. No interceptor sees such a call, so
// the call is in no other metric and no other log line.
type unreadRefusal struct {
	err error
	// reason is one of RefusedReasons.
	reason string
	// resource is what there is too little of. The address that holds most of the resource is logged, unless
	// compressed.
	resource resource
	text     string
}

var unreadRefusals = []unreadRefusal{
	{
		errCompressed, RefusedCompressed, resources,
		"compressed request refused unread; its caller gets UNIMPLEMENTED, and nothing is stored; " +
			"switch off compression in the client",
	},
	{
		errNoRoomLeft, RefusedBytes, requestBytes,
		"request refused unread: too many announced bytes; its caller gets RESOURCE_EXHAUSTED, and nothing is stored; " +
			"find out what the largest holder sends, or raise limits.requests",
	},
	{
		errTooMany, RefusedCalls, unfinishedCalls,
		"request refused unread: too many unfinished calls; its caller gets RESOURCE_EXHAUSTED, and nothing is stored; " +
			"find out why requests of the largest holder do not arrive, or add coordinators",
	},
}

// refuseUnread counts, logs and translates a refusal. Other errors are for the client already.
func (s *Server) refuseUnread(ctx context.Context, call string, err error) error {
	if err == nil {
		return nil
	}
	for _, refusal := range unreadRefusals {
		if errors.Is(err, refusal.err) {
			s.config.RefusedUnread(refusal.reason)
			s.logUnread(ctx, call, refusal)
			return translate(err, halfmsg.None).Err()
		}
	}
	return err
}

// logUnread logs each kind of refusal at most once in a logInterval.
func (s *Server) logUnread(ctx context.Context, call string, refusal unreadRefusal) {
	silent, due := s.faults.due("unread " + refusal.reason)
	if !due {
		return
	}
	client := ""
	if from, ok := peer.FromContext(ctx); ok {
		client = from.Addr.String()
	}
	scarce := refusal.resource
	switch scarce {
	case resources:
		s.config.Logger.Warn(refusal.text, "call", call, "client", client, "not_logged_before", silent)
		return
	case unfinishedCalls:
		scarce = callOf(call)
	}
	holder, held := s.clients.largestHolder(scarce)
	s.config.Logger.Warn(refusal.text, "call", call, "client", client, "largest_holder", holder, "held", held,
		"not_logged_before", silent)
}
