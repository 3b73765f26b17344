package e2e

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A caller chooses the callback target. Where all is allowed, the target still leads neither to the metadata of a
// cloud nor to the coordinator itself.
func TestCallbackTargetsCannotReachInside(t *testing.T) {
	t.Parallel()
	a := newAttacked(t, 0, "MSGHANDLER_CALLBACKS_ALLOW=*:*", "MSGHANDLER_CALLBACKS_NETWORKS=0.0.0.0/0,::/0")
	for _, target := range []string{
		a.coordinator.grpc, "http://" + a.coordinator.http, "http://169.254.169.254/latest", "169.254.169.254:80",
		"[fd00:ec2::254]:80", "100.100.100.200:80", "[64:ff9b::a9fe:a9fe]:80", "[2002:a9fe:a9fe::1]:80", "0.0.0.0:9090",
	} {
		_, err := a.honest.api.SendHalfMessage(t.Context(), &pb.SendHalfMessageRequest{
			Producer: "billing", CallbackTarget: target,
			Message: &pb.Message{Id: "inside", RoutingKey: "bills", Body: []byte("x")},
		})
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "never call") {
			t.Errorf("%s: got %v", target, err)
		}
	}
	a.serves()
}
