//go:build !berthnode

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"berth/internal/config"
)

// Tries of a webhook: all of them within a minute.
const (
	webhookTries = 3
	webhookTime  = 10 * time.Second // of one
)

var webhookPause = 2 * time.Second // the first; the next is four times as long

// postNotice posts a notice to the address in a private file. No error has the address,
// which may be a secret.
func postNotice(ctx context.Context, file string, body []byte) error {
	address, err := config.ReadWebhook(file)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: webhookTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	pause := webhookPause
	for try := 1; ; try++ {
		again, err := post(ctx, client, address, body)
		if err == nil {
			return nil
		}
		if !again || try == webhookTries || Sleep(ctx, pause) != nil {
			return fmt.Errorf("the webhook of %s: %w", file, err)
		}
		pause *= 4
	}
}

func post(ctx context.Context, client *http.Client, address string, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("its address is not understood")
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return true, u.Err
	}
	if err != nil {
		return true, err
	}
	_ = res.Body.Close()
	if res.StatusCode/100 == 2 {
		return false, nil
	}
	return res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests, fmt.Errorf("it answered %d", res.StatusCode)
}
