package server

import (
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/msghandler/msghandler/internal/access"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// need is what a method needs of its caller.
type need struct {
	// open methods answer everyone.
	open bool
	// asProducer: the caller must be allowed to call as the producer of the request.
	asProducer bool
	// role is the least role of an operator.
	role access.Role
}

// needs are what each method needs of its caller, by the full name of the method. A method that is not in the table is
// refused.
var needs = map[string]need{
	msghandlerv1.MessageHandlerService_SendHalfMessage_FullMethodName:  {asProducer: true},
	msghandlerv1.MessageHandlerService_SendHalfMessages_FullMethodName: {asProducer: true},
	msghandlerv1.MessageHandlerService_Submit_FullMethodName:           {asProducer: true},
	msghandlerv1.MessageHandlerService_SubmitAll_FullMethodName:        {asProducer: true},
	msghandlerv1.MessageHandlerService_Rollback_FullMethodName:         {asProducer: true},
	msghandlerv1.MessageHandlerService_Attend_FullMethodName:           {asProducer: true},

	adminv1.AdminService_GetStats_FullMethodName:      {role: access.Viewer},
	adminv1.AdminService_ListMessages_FullMethodName:  {role: access.Viewer},
	adminv1.AdminService_ListAudit_FullMethodName:     {role: access.Viewer},
	adminv1.AdminService_ListProblems_FullMethodName:  {role: access.Viewer},
	adminv1.AdminService_GroupMessages_FullMethodName: {role: access.Viewer},
	adminv1.AdminService_FindMessages_FullMethodName:  {role: access.Viewer},
	adminv1.AdminService_ListFinished_FullMethodName:  {role: access.Viewer},
	// Only a reader gets bodies and headers.
	adminv1.AdminService_GetMessage_FullMethodName:   {role: access.Viewer},
	adminv1.AdminService_GetFinished_FullMethodName:  {role: access.Viewer},
	adminv1.AdminService_TailMessages_FullMethodName: {role: access.Viewer},
	// Only a reader gets headers and bodies.
	adminv1.AdminService_ListDeadLetterQueues_FullMethodName: {role: access.Viewer},
	adminv1.AdminService_ListDeadLetters_FullMethodName:      {role: access.Viewer},
	adminv1.AdminService_GetDeadLetter_FullMethodName:        {role: access.Viewer},
	adminv1.AdminService_CountDeadLetters_FullMethodName:     {role: access.Viewer},
	adminv1.AdminService_ReplayDeadLetters_FullMethodName:    {role: access.Operator},
	adminv1.AdminService_DiscardDeadLetters_FullMethodName:   {role: access.Admin},
	// Only an operator may ask finally, or about an id that a message may have.
	adminv1.AdminService_AskProducer_FullMethodName: {role: access.Viewer},
	// The configuration names servers and callers.
	adminv1.AdminService_GetConfiguration_FullMethodName: {role: access.Reader},
	adminv1.AdminService_RetryMessages_FullMethodName:    {role: access.Operator},
	adminv1.AdminService_ReplayMessages_FullMethodName:   {role: access.Operator},
	adminv1.AdminService_DiscardMessages_FullMethodName:  {role: access.Admin},

	healthv1.Health_Check_FullMethodName: {open: true},
	healthv1.Health_List_FullMethodName:  {open: true},
	healthv1.Health_Watch_FullMethodName: {open: true},

	reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {open: true},
	reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {open: true},
}
