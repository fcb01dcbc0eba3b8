function slurm_job_submit(job, partitions, uid)
	if job.min_mem_per_node ~= nil then
		slurm.log_user("Do not use --mem on this cluster: memory is given out with CPUs. Ask for more CPUs.")
		return slurm.ERROR
	end
	return slurm.SUCCESS
end

function slurm_job_modify(job, old, partitions, uid)
	return slurm.SUCCESS
end

return slurm.SUCCESS
