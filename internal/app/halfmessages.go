package app

import (
	"cmp"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/server"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// invalidRequest is the reason of an answer that has the fields of the request in place of a reason.
const invalidRequest = "INVALID_ARGUMENT"

// countHalfMessages counts the half messages of a call by producer: those that were stored, and the others by reason.
func (a *App) countHalfMessages(request, response any, err error) {
	switch r := request.(type) {
	case *msghandlerv1.SendHalfMessageRequest:
		if err != nil {
			a.unstored(r.GetProducer(), reasonOf(err), 1)
			return
		}
		a.metrics.Stored(r.GetProducer(), 1)
	case *msghandlerv1.SendHalfMessagesRequest:
		if err != nil {
			a.unstored(r.GetProducer(), reasonOf(err), len(r.GetMessages()))
			return
		}
		answer, _ := response.(*msghandlerv1.SendHalfMessagesResponse)
		stored := int64(len(answer.GetOutcomes()))
		for _, outcome := range answer.GetOutcomes() {
			if outcome.GetCode() != int32(codes.OK) {
				stored--
				a.unstored(r.GetProducer(), cmp.Or(outcome.GetReason(), invalidRequest), 1)
			}
		}
		if stored > 0 {
			a.metrics.Stored(r.GetProducer(), stored)
		}
	}
}

func (a *App) unstored(producer, reason string, messages int) {
	if !server.ValidProducer(producer) {
		producer = "" // a name from outside may hold anything
	}
	a.metrics.HalfMessagesRefused(producer, reason, int64(messages))
}

// reasonOf returns the reason in the error of a call.
func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			return info.GetReason()
		}
	}
	return invalidRequest
}
