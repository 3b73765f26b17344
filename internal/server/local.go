package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/access"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// localConn makes the unary calls of AdminService for callers in this process, whose calls pass no interceptor. The
// identity of the caller is in the context.
type localConn struct{ operators *operators }

// Invoke implements grpc.ClientConnInterface: it makes a call that the caller in the context may make.
func (c localConn) Invoke(ctx context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	if err := permits(access.From(ctx), method, request); err != nil {
		return c.operators.server.refuseCaller(ctx, method, "", err)
	}
	service := &adminv1.AdminService_ServiceDesc
	for i := range service.Methods {
		if method != "/"+service.ServiceName+"/"+service.Methods[i].MethodName {
			continue
		}
		decode := func(into any) error { return copyMessage(into, request) }
		answered, err := service.Methods[i].Handler(c.operators, ctx, decode, nil)
		if err != nil {
			return err
		}
		return copyMessage(answer, answered)
	}
	return status.Errorf(codes.Unimplemented, "%s is no call in this process", method)
}

// NewStream implements grpc.ClientConnInterface.
func (localConn) NewStream(
	_ context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, status.Errorf(codes.Unimplemented, "%s is no call in this process", method)
}

// copyMessage copies a message into an empty one.
func copyMessage(into, from any) error {
	to, isMessage := into.(proto.Message)
	message, isToo := from.(proto.Message)
	if !isMessage || !isToo {
		return status.Errorf(codes.Internal, "%T or %T is no message", into, from)
	}
	proto.Merge(to, message)
	return nil
}
