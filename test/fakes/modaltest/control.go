package modaltest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The control plane. Requests are looked at as far as the stand-in can tell what
// the real one would say to them.

// AuthTokenGet gives a token that the SDK sends with every other call.
func (s *Server) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	return pb.AuthTokenGetResponse_builder{Token: jwt("client")}.Build(), nil
}

// AppGetOrCreate finds or makes an app.
func (s *Server) AppGetOrCreate(_ context.Context, r *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.apps[r.GetAppName()]
	if !ok {
		if r.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
			return nil, status.Errorf(codes.NotFound, "App '%s' not found", r.GetAppName())
		}
		id = s.id("ap")
		s.apps[r.GetAppName()] = id
	}
	return pb.AppGetOrCreateResponse_builder{AppId: id}.Build(), nil
}

// EnvironmentGetOrCreate tells the settings of an environment of Modal's.
func (s *Server) EnvironmentGetOrCreate(_ context.Context, r *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	return pb.EnvironmentGetOrCreateResponse_builder{EnvironmentId: "en-stand-in", Metadata: pb.EnvironmentMetadata_builder{
		Name: r.GetDeploymentName(), Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: "2025.06"}.Build(),
	}.Build()}.Build(), nil
}

// ImageGetOrCreate builds an image: the same request is the same image. A
// reference with "no-such" in it cannot be built.
func (s *Server) ImageGetOrCreate(_ context.Context, r *pb.ImageGetOrCreateRequest) (*pb.ImageGetOrCreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.GetBuilderVersion() == "" {
		return nil, status.Error(codes.InvalidArgument, "no builder version")
	}
	text := strings.Join(r.GetImage().GetDockerfileCommands(), "\n")
	id, ok := s.tags["\x00"+text]
	if !ok {
		id = s.id("im")
		s.tags["\x00"+text] = id
		if !strings.Contains(text, "no-such") {
			s.images[id] = &image{id: id}
		}
	}
	b := pb.ImageGetOrCreateResponse_builder{ImageId: id}
	if ok && s.images[id] != nil {
		b.Result = success()
	}
	return b.Build(), nil
}

// EnvironmentList tells of the environments of the account what they use and may use.
func (s *Server) EnvironmentList(context.Context, *emptypb.Empty) (*pb.EnvironmentListResponse, error) {
	most := int32(100)
	main := pb.EnvironmentListItem_builder{Name: "main", EnvironmentId: "en-stand-in", Default: true, MaxConcurrentTasks: &most}
	for _, b := range s.Running() {
		main.CurrentConcurrentTasks++
		main.CurrentConcurrentGpus += int32(b.Definition.GetResources().GetGpuConfig().GetCount()) //nolint:gosec // a few
	}
	budget := 30.0
	spent := pb.EnvironmentListItem_builder{Name: "spent", EnvironmentId: "en-spent", CycleBudgetDollars: &budget, CurrentCycleUsage: 31.5, SpendLimitReached: true}
	return pb.EnvironmentListResponse_builder{Items: []*pb.EnvironmentListItem{spent.Build(), main.Build()}}.Build(), nil
}

// TokenInfoGet tells whose a token is.
func (s *Server) TokenInfoGet(context.Context, *pb.TokenInfoGetRequest) (*pb.TokenInfoGetResponse, error) {
	return pb.TokenInfoGetResponse_builder{TokenId: TokenID, WorkspaceName: "stand-in", ExpiresAt: timestamppb.New(time.Now().Add(s.TokenLife))}.Build(), nil
}

func success() *pb.GenericResult {
	return pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build()
}

// ImageJoinStreaming tells how a build goes.
func (s *Server) ImageJoinStreaming(r *pb.ImageJoinStreamingRequest, out grpc.ServerStreamingServer[pb.ImageJoinStreamingResponse]) error {
	if r.GetLastEntryId() == "" {
		if err := out.Send(pb.ImageJoinStreamingResponse_builder{EntryId: "1", TaskLogs: []*pb.TaskLogs{pb.TaskLogs_builder{Data: "pulling\n"}.Build()}}.Build()); err != nil {
			return err
		}
	}
	(&Fault{Wait: s.Delay}).wait(out.Context())
	s.mu.Lock()
	_, ok := s.images[r.GetImageId()]
	s.mu.Unlock()
	res := success()
	if !ok {
		res = pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exception: "manifest unknown"}.Build()
	}
	return out.Send(pb.ImageJoinStreamingResponse_builder{EntryId: "2", Result: res, Eof: true}.Build())
}

// ImageFromId finds an image.
func (s *Server) ImageFromId(_ context.Context, r *pb.ImageFromIdRequest) (*pb.ImageFromIdResponse, error) { //nolint:staticcheck // the stubs say so
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[r.GetImageId()] == nil {
		return nil, status.Error(codes.NotFound, "no such image")
	}
	return pb.ImageFromIdResponse_builder{ImageId: r.GetImageId()}.Build(), nil
}

// ImagePublish gives an image a name.
func (s *Server) ImagePublish(_ context.Context, r *pb.ImagePublishRequest) (*pb.ImagePublishResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[r.GetImageId()] == nil {
		return nil, status.Error(codes.NotFound, "no such image")
	}
	s.tags[r.GetTag()] = r.GetImageId()
	return &pb.ImagePublishResponse{}, nil
}

// ImageGetByTag finds an image by its name.
func (s *Server) ImageGetByTag(_ context.Context, r *pb.ImageGetByTagRequest) (*pb.ImageGetByTagResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.tags[r.GetTag()]
	if !ok || s.images[id] == nil {
		return nil, status.Errorf(codes.NotFound, "Image '%s' not found", r.GetTag())
	}
	return pb.ImageGetByTagResponse_builder{ImageId: id}.Build(), nil
}

// ImageListTags lists the names of images, two at a time.
func (s *Server) ImageListTags(_ context.Context, r *pb.ImageListTagsRequest) (*pb.ImageListTagsResponse, error) {
	const page = 2
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.GetMaxObjects() > 100 {
		return nil, status.Error(codes.InvalidArgument, "max_objects must be at most 100")
	}
	var names []string
	for name, id := range s.tags {
		if s.images[id] != nil && (r.GetImageId() == "" || r.GetImageId() == id) && strings.HasPrefix(name, r.GetTagPrefix()) && !strings.HasPrefix(name, "\x00") && name > r.GetPageToken() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out pb.ImageListTagsResponse_builder
	if len(names) > page {
		names = names[:page]
		out.NextPageToken = names[page-1]
	}
	for _, name := range names {
		out.Items = append(out.Items, pb.ImageListTagsItem_builder{Tag: name, ImageId: s.tags[name], CreatedAt: float64(time.Now().Unix())}.Build())
	}
	return out.Build(), nil
}

// ImageNameDelete takes a name from its image.
func (s *Server) ImageNameDelete(_ context.Context, r *pb.ImageNameDeleteRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tags[r.GetTag()] == "" {
		return nil, status.Errorf(codes.NotFound, "Image '%s' not found", r.GetTag())
	}
	delete(s.tags, r.GetTag())
	return &emptypb.Empty{}, nil
}

// ImageDelete deletes an image.
func (s *Server) ImageDelete(_ context.Context, r *pb.ImageDeleteRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[r.GetImageId()] == nil {
		return nil, status.Error(codes.NotFound, "no such image")
	}
	delete(s.images, r.GetImageId())
	return &emptypb.Empty{}, nil
}

// SecretGetOrCreate keeps variables for sandboxes of the first kind.
func (s *Server) SecretGetOrCreate(_ context.Context, r *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.id("st")
	s.secrets[id] = r.GetEnvDict()
	return pb.SecretGetOrCreateResponse_builder{SecretId: id}.Build(), nil
}

func (s *Server) variables(ids []string, sources []*pb.SecretSource) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	env := map[string]string{}
	add := func(from map[string]string) {
		for k, v := range from {
			env[k] = v
		}
	}
	for _, id := range ids {
		add(s.secrets[id])
	}
	for _, src := range sources {
		add(s.secrets[src.GetSecretId()])
		add(src.GetEnv().GetContents())
	}
	return env
}

// SandboxCreateV2 makes a sandbox and tells at once how to reach it.
func (s *Server) SandboxCreateV2(ctx context.Context, r *pb.SandboxCreateV2Request) (*pb.SandboxCreateV2Response, error) {
	b, err := s.create(r.GetAppId(), r.GetDefinition(), r.GetTags(), true, s.variables(nil, r.GetSecretSources()))
	if err != nil {
		return nil, err
	}
	(&Fault{Wait: s.Delay}).wait(ctx)
	return pb.SandboxCreateV2Response_builder{SandboxId: b.ID, TaskId: b.Task, CommandRouterAccess: s.access()}.Build(), nil
}

// SandboxCreate makes a sandbox of the first kind, which is scheduled later.
func (s *Server) SandboxCreate(_ context.Context, r *pb.SandboxCreateRequest) (*pb.SandboxCreateResponse, error) {
	b, err := s.create(r.GetAppId(), r.GetDefinition(), r.GetTags(), false, s.variables(r.GetDefinition().GetSecretIds(), nil))
	if err != nil {
		return nil, err
	}
	return pb.SandboxCreateResponse_builder{SandboxId: b.ID}.Build(), nil
}

func (s *Server) access() *pb.CommandRouterAccess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pb.CommandRouterAccess_builder{Jwt: jwt("worker " + itoa(s.epoch)), Url: "https://" + s.addr}.Build()
}

func (s *Server) find(id string) (*Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.sandboxes[id]; b != nil {
		return b, nil
	}
	return nil, status.Errorf(codes.NotFound, "Sandbox %s not found", id)
}

func (s *Server) byName(r *pb.SandboxGetFromNameRequest, v2 bool) (*pb.SandboxGetFromNameResponse, error) {
	var found *Sandbox
	for _, b := range s.Sandboxes() {
		s.mu.Lock()
		ours := b.Name == r.GetSandboxName() && b.App == s.apps[r.GetAppName()] && strings.HasPrefix(b.ID, "sb-v2-") == v2
		s.mu.Unlock()
		if !ours || b.Result() != nil && (!r.GetIncludeTerminated() || found != nil && found.Created.After(b.Created)) {
			continue
		}
		found = b
		if b.Result() == nil {
			break
		}
	}
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox '%s'", r.GetSandboxName())
	}
	return pb.SandboxGetFromNameResponse_builder{SandboxId: found.ID, Metadata: pb.SandboxHandleMetadata_builder{Result: found.Result(), AppId: found.App}.Build()}.Build(), nil
}

// SandboxGetFromNameV2 finds a sandbox by its name.
func (s *Server) SandboxGetFromNameV2(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return s.byName(r, true)
}

// SandboxGetFromName finds one of the first kind.
func (s *Server) SandboxGetFromName(_ context.Context, r *pb.SandboxGetFromNameRequest) (*pb.SandboxGetFromNameResponse, error) {
	return s.byName(r, false)
}

// SandboxGetTaskIdV2 names the task that a sandbox is.
func (s *Server) SandboxGetTaskIdV2(_ context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) { //nolint:staticcheck // the stubs say so
	b, err := s.find(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if res := b.Result(); res != nil {
		return pb.SandboxGetTaskIdResponse_builder{TaskResult: res}.Build(), nil
	}
	if time.Since(b.Created) < s.Delay {
		return &pb.SandboxGetTaskIdResponse{}, nil
	}
	return pb.SandboxGetTaskIdResponse_builder{TaskId: &b.Task}.Build(), nil
}

// SandboxGetTaskId does it for the first kind.
func (s *Server) SandboxGetTaskId(ctx context.Context, r *pb.SandboxGetTaskIdRequest) (*pb.SandboxGetTaskIdResponse, error) { //nolint:staticcheck // the stubs say so
	return s.SandboxGetTaskIdV2(ctx, r)
}

// SandboxGetCommandRouterAccess tells how to reach the worker.
func (s *Server) SandboxGetCommandRouterAccess(_ context.Context, r *pb.SandboxGetCommandRouterAccessRequest) (*pb.SandboxGetCommandRouterAccessResponse, error) {
	b, err := s.find(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if b.Result() != nil {
		return nil, status.Error(codes.FailedPrecondition, "Sandbox has already finished")
	}
	a := s.access()
	return pb.SandboxGetCommandRouterAccessResponse_builder{Jwt: a.GetJwt(), Url: a.GetUrl()}.Build(), nil
}

// TaskGetCommandRouterAccess does it for the first kind.
func (s *Server) TaskGetCommandRouterAccess(_ context.Context, r *pb.TaskGetCommandRouterAccessRequest) (*pb.TaskGetCommandRouterAccessResponse, error) {
	if _, err := s.task(r.GetTaskId()); err != nil {
		return nil, err
	}
	a := s.access()
	return pb.TaskGetCommandRouterAccessResponse_builder{Jwt: a.GetJwt(), Url: a.GetUrl()}.Build(), nil
}

// SandboxListV2 lists sandboxes of both kinds, the latest first, two at a time.
func (s *Server) SandboxListV2(_ context.Context, r *pb.SandboxListRequest) (*pb.SandboxListResponse, error) {
	const page = 2
	var out []*pb.SandboxInfo
	for _, b := range s.Sandboxes() {
		at := float64(b.Created.UnixMicro()) / 1e6
		match := r.GetAppId() == "" || r.GetAppId() == b.App
		for _, t := range r.GetTags() {
			match = match && b.Tags[t.GetTagName()] == t.GetTagValue()
		}
		if !match || b.Result() != nil && !r.GetIncludeFinished() || r.GetBeforeTimestamp() > 0 && at >= r.GetBeforeTimestamp() {
			continue
		}
		info := pb.SandboxInfo_builder{Id: b.ID, CreatedAt: at, AppId: b.App, Name: b.Name, ImageId: b.Definition.GetImageId(), TimeoutSecs: b.Definition.GetTimeoutSecs()}
		for k, v := range b.Tags {
			info.Tags = append(info.Tags, pb.SandboxTag_builder{TagName: k, TagValue: v}.Build())
		}
		out = append(out, info.Build())
	}
	slices.SortFunc(out, func(a, b *pb.SandboxInfo) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	return pb.SandboxListResponse_builder{Sandboxes: out[:min(page, len(out))]}.Build(), nil
}

// SandboxTagsGetV2 tells the tags of a sandbox.
func (s *Server) SandboxTagsGetV2(_ context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	b, err := s.find(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	var out pb.SandboxTagsGetResponse_builder
	for k, v := range b.Tags {
		out.Tags = append(out.Tags, pb.SandboxTag_builder{TagName: k, TagValue: v}.Build())
	}
	return out.Build(), nil
}

// SandboxTagsGet does it for the first kind.
func (s *Server) SandboxTagsGet(ctx context.Context, r *pb.SandboxTagsGetRequest) (*pb.SandboxTagsGetResponse, error) {
	return s.SandboxTagsGetV2(ctx, r)
}

// SandboxTerminateV2 ends a sandbox. That it has ended already is not an error.
func (s *Server) SandboxTerminateV2(_ context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	b, err := s.find(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	last := b.Result()
	s.end(b, pb.GenericResult_GENERIC_STATUS_TERMINATED)
	return pb.SandboxTerminateResponse_builder{ExistingResult: last}.Build(), nil
}

// SandboxTerminate does it for the first kind.
func (s *Server) SandboxTerminate(ctx context.Context, r *pb.SandboxTerminateRequest) (*pb.SandboxTerminateResponse, error) {
	return s.SandboxTerminateV2(ctx, r)
}

// SandboxWaitV2 waits for the end of a sandbox.
func (s *Server) SandboxWaitV2(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	b, err := s.find(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	t := time.NewTimer(time.Duration(float64(r.GetTimeout()) * float64(time.Second)))
	defer t.Stop()
	select {
	case <-b.ended:
	case <-t.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return pb.SandboxWaitResponse_builder{Result: b.Result(), Metadata: pb.SandboxHandleMetadata_builder{AppId: b.App}.Build()}.Build(), nil
}

// SandboxWait does it for the first kind.
func (s *Server) SandboxWait(ctx context.Context, r *pb.SandboxWaitRequest) (*pb.SandboxWaitResponse, error) {
	return s.SandboxWaitV2(ctx, r)
}

// SandboxGetExitSnapshotV2 names the image of the last state of a sandbox.
func (s *Server) SandboxGetExitSnapshotV2(_ context.Context, r *pb.SandboxGetExitSnapshotRequest) (*pb.SandboxGetExitSnapshotResponse, error) {
	b, err := s.find(r.GetSandboxId())
	if err != nil {
		return nil, err
	}
	if b.Definition.GetExperimentalOptionsV2()["enable_exit_snapshot"] != "true" {
		return nil, status.Error(codes.InvalidArgument, "exit snapshots were not enabled")
	}
	if b.Result() == nil {
		return pb.SandboxGetExitSnapshotResponse_builder{Pending: &pb.SandboxGetExitSnapshotResponse_Pending{}}.Build(), nil
	}
	<-b.ended
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.exitSnap == "" {
		return pb.SandboxGetExitSnapshotResponse_builder{Error: pb.SandboxGetExitSnapshotResponse_Error_builder{ErrorCode: pb.SandboxGetExitSnapshotResponse_ERROR_CODE_TIMEOUT, Message: "it failed"}.Build()}.Build(), nil
	}
	return pb.SandboxGetExitSnapshotResponse_builder{Success: pb.SandboxGetExitSnapshotResponse_Success_builder{ImageId: b.exitSnap}.Build()}.Build(), nil
}
