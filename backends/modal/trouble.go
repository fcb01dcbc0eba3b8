package modal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"berth/backends/external/protocol"

	sdk "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	hintKeys   = "make a token at https://modal.com/settings/tokens, then export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or write ~/.modal.toml"
	hintReach  = "is the network up? Modal is at api.modal.com:443, or at MODAL_SERVER_URL; HTTPS_PROXY is honoured"
	hintQuota  = "see the account's limits at https://modal.com/settings/usage; berth env ls shows what runs, berth env gc what is not needed"
	hintInput  = "look at what is asked for: the image, the sizes, and gpu and region of [terminal.external.modal]"
	hintRate   = "berth has waited as long as it could: try again in a moment, or open fewer at once"
	hintChange = "Modal has changed its interface: install a newer berth-backend-modal"
)

// trouble says what an error of Modal's means. doing is what it kept from being
// done: "make the sandbox".
func trouble(doing string, err error) error {
	if err == nil {
		return nil
	}
	var known *protocol.Error
	if errors.As(err, &known) {
		return err
	}
	e := &protocol.Error{Kind: protocol.Internal, Message: fmt.Sprintf("%s: %s", doing, text(err))}
	var (
		missing   sdk.NotFoundError
		exists    sdk.AlreadyExistsError
		invalid   sdk.InvalidError
		exhausted sdk.ResourceExhaustedError
		remote    sdk.RemoteError
		ended     sdk.ConflictError
		timeout   sdk.TimeoutError
	)
	switch {
	case errors.Is(err, context.Canceled):
		e.Kind, e.Message = protocol.Unclear, doing+": it was interrupted"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout):
		e.Kind, e.Hint = protocol.Unreachable, hintReach
	case errors.As(err, &missing):
		e.Kind = protocol.NotFound
	case errors.As(err, &exists):
		e.Kind = protocol.Conflict
	case errors.As(err, &invalid):
		e.Kind, e.Hint = protocol.Input, hintInput
	case errors.As(err, &exhausted):
		e.Kind, e.Hint = protocol.Quota, hintQuota
	case errors.As(err, &remote):
		e.Kind, e.Hint = protocol.NotFound, "can everybody pull the image? docker manifest inspect IMAGE; private registries are not supported"
	case errors.As(err, &ended):
		e.Kind = protocol.Gone
	case strings.Contains(err.Error(), "missing credentials"):
		e.Kind, e.Message, e.Hint = protocol.Auth, noKey(), hintKeys
	default:
		fromStatus(e, err)
	}
	return e
}

// noKey says what is missing.
func noKey() string {
	id, secret, profile := os.Getenv("MODAL_TOKEN_ID"), os.Getenv("MODAL_TOKEN_SECRET"), os.Getenv("MODAL_PROFILE")
	switch {
	case id != "" && secret == "":
		return "no key for Modal: MODAL_TOKEN_ID is set, and MODAL_TOKEN_SECRET is not"
	case id == "" && secret != "":
		return "no key for Modal: MODAL_TOKEN_SECRET is set, and MODAL_TOKEN_ID is not"
	case profile != "":
		return fmt.Sprintf("no key for Modal: MODAL_PROFILE is %q, and that table of the file has none", profile)
	}
	return "no key for Modal"
}

// fromStatus reads an error of the wire.
func fromStatus(e *protocol.Error, err error) {
	st, ok := status.FromError(err)
	if !ok {
		return
	}
	switch st.Code() {
	case codes.Unauthenticated:
		e.Kind, e.Message, e.Hint = protocol.Auth, "Modal does not take the key: "+text(err), hintKeys
	case codes.PermissionDenied:
		e.Kind, e.Hint = protocol.Auth, "the token lacks a right for this; "+hintKeys
	case codes.ResourceExhausted:
		e.Kind, e.Hint = protocol.Quota, hintQuota
		if _, is := refused(err); is {
			e.Kind, e.Hint = protocol.Rate, hintRate
			if _, bounded := maxThrottleWait(); bounded {
				e.Hint = "unset MODAL_MAX_THROTTLE_WAIT, and berth waits longer; or try again in a moment"
			}
		}
	case codes.NotFound:
		e.Kind = protocol.NotFound
	case codes.AlreadyExists:
		e.Kind = protocol.Conflict
	case codes.InvalidArgument, codes.OutOfRange:
		e.Kind, e.Hint = protocol.Input, hintInput
	case codes.FailedPrecondition, codes.Aborted:
		e.Kind = protocol.Gone
	case codes.Unimplemented:
		e.Kind, e.Hint = protocol.Unsupported, hintChange
	case codes.Unavailable, codes.DeadlineExceeded:
		e.Kind, e.Hint = protocol.Unreachable, hintReach
	case codes.Canceled, codes.Unknown, codes.Internal, codes.DataLoss:
		e.Kind, e.Hint = protocol.Unreachable, "Modal failed; see https://status.modal.com"
	}
}

// text is what an error says, without the words of the wire.
func text(err error) string {
	s := err.Error()
	if st, ok := status.FromError(err); ok && st.Message() != "" {
		s = st.Message()
	}
	if i := strings.LastIndex(s, " desc = "); i >= 0 { // of an error within
		s = strings.Trim(s[i+len(" desc = "):], `"`)
	}
	s = strings.TrimPrefix(s, "transport: Error while dialing: ")
	for _, kind := range []string{
		"RemoteError", "InvalidError", "NotFoundError", "AlreadyExistsError",
		"ResourceExhaustedError", "ConflictError", "TimeoutError", "ExecutionError",
	} {
		s = strings.TrimPrefix(s, kind+": ") // of the SDK's types
	}
	if _, reason, ok := strings.Cut(s, " failed with the exception:"); ok && strings.HasPrefix(s, "Image build for ") {
		s = reason
	}
	return strings.TrimSuffix(strings.TrimSpace(s), ".")
}

// passing tells whether an error may be gone when the same is asked again.
func passing(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled, codes.Internal, codes.Unknown:
		_, ok := status.FromError(err)
		return ok
	}
	return false
}

// is tells whether an error is of this kind, once it has been read by [trouble].
func is(err error, kind protocol.Kind) bool {
	var e *protocol.Error
	return errors.As(err, &e) && e.Kind == kind
}
