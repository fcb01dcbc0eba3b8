package broker

import (
	"encoding/json"
	"net/http"
	"strconv"

	"berth/jobs"
)

// refusal is an answer of the broker's own.
type refusal struct {
	status    int
	why, hint string
}

func (e *refusal) Error() string { return e.why }

// The words that vendors have for a status, which their libraries look at.
var (
	anthropicTypes = map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 413: "request_too_large",
		429: "rate_limit_error", 502: "api_error", 503: "overloaded_error"}
	openaiTypes = map[int]string{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 413: "invalid_request_error",
		429: "insufficient_quota", 502: "server_error", 503: "server_error"}
	geminiTypes = map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 413: "INVALID_ARGUMENT",
		429: "RESOURCE_EXHAUSTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE"}
)

// answer writes a refusal as the vendor would, so that programs show its words.
func (e *refusal) answer(api string, w http.ResponseWriter) {
	text := "berth: " + e.why
	if e.hint != "" {
		text += " (" + e.hint + ")"
	}
	type object = map[string]any
	var body any
	switch api {
	case jobs.APIAnthropic:
		body = object{"type": "error", "error": object{"type": anthropicTypes[e.status], "message": text}, "hint": e.hint}
	case jobs.APIOpenAI:
		body = object{"error": object{"message": text, "type": openaiTypes[e.status], "code": openaiTypes[e.status], "param": nil}, "hint": e.hint}
	case jobs.APIGemini:
		body = object{"error": object{"code": e.status, "message": text, "status": geminiTypes[e.status]}, "hint": e.hint}
	default:
		body = object{"error": text, "hint": e.hint}
	}
	b, _ := json.Marshal(body)
	kind := "application/json"
	if api == jobs.APIGit {
		b, kind = []byte(text+"\n"), "text/plain; charset=utf-8" // git shows these words
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	h.Set("Cache-Control", "no-store")
	if e.status != http.StatusServiceUnavailable { // libraries of two vendors ask again after 429 and 5xx
		h.Set("X-Should-Retry", "false")
	}
	if e.status == http.StatusUpgradeRequired {
		h.Set("Upgrade", "HTTP/1.1")
	}
	w.WriteHeader(e.status)
	_, _ = w.Write(b)
}
