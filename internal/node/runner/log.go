package runner

import (
	"context"
	"log/slog"
)

// both gives each record to two handlers, as far as their levels want it.
type both [2]slog.Handler

// Enabled implements [slog.Handler].
func (b both) Enabled(ctx context.Context, l slog.Level) bool {
	return b[0].Enabled(ctx, l) || b[1].Enabled(ctx, l)
}

// Handle implements [slog.Handler].
func (b both) Handle(ctx context.Context, r slog.Record) error {
	var err error
	for _, h := range b {
		if h.Enabled(ctx, r.Level) {
			if herr := h.Handle(ctx, r.Clone()); err == nil {
				err = herr
			}
		}
	}
	return err
}

// WithAttrs implements [slog.Handler].
func (b both) WithAttrs(attrs []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(attrs), b[1].WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (b both) WithGroup(name string) slog.Handler {
	return both{b[0].WithGroup(name), b[1].WithGroup(name)}
}
